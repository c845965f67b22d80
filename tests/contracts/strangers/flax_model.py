"""A Flax module as a ``Model`` of ax-trainer: Flax's own names of dims become the axes that a mesh places by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

Params: TypeAlias = Mapping[str, object]


class Guesser(nn.Module):
    """Guesses the next token from the token alone, half of what it knows dropped while it learns."""

    vocab_size: int
    width: int

    def setup(self) -> None:
        normal = nn.initializers.normal(0.5)
        self.embedding = nn.Embed(
            self.vocab_size, self.width, embedding_init=nn.with_logical_partitioning(normal, ("vocab", "embed"))
        )
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Dense(
            self.vocab_size, use_bias=False, kernel_init=nn.with_logical_partitioning(normal, ("embed", "vocab"))
        )

    def __call__(self, tokens: jax.Array, *, train: bool) -> jax.Array:
        hidden = nn.tanh(self.dropout(self.embedding(tokens), deterministic=not train))
        return self.head(hidden)


@dataclass(frozen=True)
class Described:
    """What Flax's box around a parameter tells of it."""

    shape: tuple[int, ...]
    dtype: np.dtype
    axes: tuple[str | None, ...]


class FlaxModel:
    """Fits ``Model``: a dict of arrays in, a loss out."""

    def __init__(self, vocab_size: int, width: int) -> None:
        self._module = Guesser(vocab_size, width)

    def _boxed(self, key: jax.Array) -> Params:
        return cast("Params", self._module.init(key, jnp.zeros((1, 1), jnp.int32), train=False)["params"])

    def specs(self) -> Params:
        boxes = jax.eval_shape(self._boxed, jax.random.key(0))
        described: Params = jax.tree.map(
            lambda box: Described(box.value.shape, box.value.dtype, tuple(box.names)),
            boxes,
            is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned),
        )
        return described

    def init(self, key: jax.Array, /) -> Params:
        return cast("Params", nn.unbox(self._boxed(key)))

    def loss(
        self, params: Params, batch: Mapping[str, jax.Array], /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, dict[str, tuple[jax.Array, jax.Array]]]:
        applied = self._module.apply({"params": params}, batch["tokens"], train=train, rngs={"dropout": key})
        logits = cast("jax.Array", applied)
        counted = batch["targets"] >= 0
        targets = jnp.where(counted, batch["targets"], 0)[..., None]
        losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets, axis=-1)[..., 0]
        weight = counted.sum(dtype=jnp.int32).astype(jnp.float32)
        loss = jnp.where(counted, losses, 0.0).sum() / weight
        return loss, {"loss": (loss, weight)}
