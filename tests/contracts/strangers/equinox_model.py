"""An Equinox module as a ``Model`` of ax-trainer: its arrays are the parameters, the rest of it stays here.

Equinox knows no names of dims, so every dim is called None, which any partitioner keeps whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class Guesser(eqx.Module):
    """Guesses the next token from the token alone."""

    embedding: eqx.nn.Embedding
    mlp: eqx.nn.MLP

    def __init__(self, vocab_size: int, width: int, *, key: jax.Array) -> None:
        keys = jax.random.split(key)
        self.embedding = eqx.nn.Embedding(vocab_size, width, key=keys[0])
        self.mlp = eqx.nn.MLP(width, vocab_size, width, depth=1, key=keys[1])

    def __call__(self, token: jax.Array, /) -> jax.Array:
        """The logits ``[V]`` after one token."""
        return self.mlp(self.embedding(token))


@dataclass(frozen=True)
class Described:
    """What is known of an array before there is one."""

    shape: tuple[int, ...]
    dtype: np.dtype
    axes: tuple[None, ...]


class EquinoxModel:
    """Fits ``Model``: a pytree of arrays in, a loss out."""

    def __init__(self, vocab_size: int, width: int) -> None:
        self._sizes = vocab_size, width
        self._static = eqx.partition(self._module(jax.random.key(0)), eqx.is_array)[1]

    def _module(self, key: jax.Array) -> Guesser:
        return Guesser(*self._sizes, key=key)

    def specs(self) -> Guesser:
        arrays = eqx.filter_eval_shape(self.init, jax.random.key(0))
        described: Guesser = jax.tree.map(lambda x: Described(x.shape, x.dtype, (None,) * x.ndim), arrays)
        return described

    def init(self, key: jax.Array, /) -> Guesser:
        arrays: Guesser = eqx.filter(self._module(key), eqx.is_array)
        return arrays

    def loss(
        self, params: Guesser, batch: Mapping[str, jax.Array], /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, dict[str, tuple[jax.Array, jax.Array]]]:
        module = eqx.combine(params, self._static)
        logits = jax.vmap(jax.vmap(module))(batch["tokens"])
        counted = batch["targets"] >= 0
        targets = jnp.where(counted, batch["targets"], 0)[..., None]
        losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets, axis=-1)[..., 0]
        weight = counted.sum(dtype=jnp.int32).astype(jnp.float32)
        loss = jnp.where(counted, losses, 0.0).sum() / weight
        return loss, {"loss": (loss, weight)}
