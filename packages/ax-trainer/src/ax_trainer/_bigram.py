"""The smallest language model: each token's successor guessed from the token alone, through a hidden layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .protocols import Batch, HostBatch, Metrics


@dataclass(frozen=True)
class ArraySpec:
    """A parameter's description; fits ``Spec``."""

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]

    @property
    def dtype(self) -> np.dtype:
        """All are float32."""
        return np.dtype(np.float32)


BigramParams: TypeAlias = dict[str, jax.Array]


class BigramModel:
    """``logits = tanh(dropout(embedding[token]) + bias) @ head``; batches are ``tokens`` and ``targets``, ``[B, T]`` int32.

    A negative target isn't counted. Dropout is there so that the use of keys shows in the numbers.
    """

    def __init__(self, *, vocab_size: int = 17, dim: int = 8, dropout: float = 0.1) -> None:
        self._vocab_size = vocab_size
        self._dim = dim
        self._dropout = dropout

    def specs(self) -> dict[str, ArraySpec]:
        """Two matrices and a vector."""
        return {
            "embedding": ArraySpec((self._vocab_size, self._dim), ("vocab", "embed")),
            "bias": ArraySpec((self._dim,), ("embed",)),
            "head": ArraySpec((self._dim, self._vocab_size), ("embed", "vocab")),
        }

    def init(self, key: jax.Array, /) -> BigramParams:
        """Normal matrices of standard deviation 0.5, a zero bias."""
        keys = jax.random.split(key)
        return {
            "embedding": jax.random.normal(keys[0], (self._vocab_size, self._dim)) * 0.5,
            "bias": jnp.zeros((self._dim,)),
            "head": jax.random.normal(keys[1], (self._dim, self._vocab_size)) * 0.5,
        }

    def loss(self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool) -> tuple[jax.Array, Metrics]:
        """The mean cross-entropy over counted targets, and the share of targets guessed right."""
        hidden = params["embedding"][batch["tokens"]]
        if train and self._dropout:
            kept = jax.random.bernoulli(key, 1 - self._dropout, hidden.shape)
            hidden = jnp.where(kept, hidden / (1 - self._dropout), 0.0)
        logits = jnp.tanh(hidden + params["bias"][None, None]) @ params["head"]
        targets = batch["targets"]
        counted = (targets >= 0).astype(jnp.float32)
        log_probs = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(targets, 0)[..., None], axis=-1)[..., 0]
        weight = jnp.sum(counted)
        loss = -jnp.sum(log_probs * counted) / jnp.maximum(weight, 1.0)
        right = (jnp.argmax(logits, axis=-1) == targets).astype(jnp.float32)
        accuracy = jnp.sum(right * counted) / jnp.maximum(weight, 1.0)
        return loss, {"loss": (loss, weight), "accuracy": (accuracy, weight)}


def bigram_batches(
    num_batches: int, *, batch_size: int = 8, length: int = 6, vocab_size: int = 17, seed: int = 0
) -> list[HostBatch]:
    """Batches of a language in which ``3 · token + 1`` follows a token nine times out of ten, and a last target is padding."""
    random = np.random.default_rng(seed)
    batches: list[HostBatch] = []
    for _ in range(num_batches):
        tokens = random.integers(0, vocab_size, (batch_size, length))
        noise = random.integers(0, vocab_size, (batch_size, length))
        targets = np.where(random.random((batch_size, length)) < 0.9, (3 * tokens + 1) % vocab_size, noise)
        targets[:, -1] = -1
        batches.append({"tokens": tokens.astype(np.int32), "targets": targets.astype(np.int32)})
    return batches
