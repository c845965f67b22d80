"""A cache that keeps the latest positions only: each new row pushes the oldest out."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Rows(NamedTuple):
    """``[B, S, K, H]``, ``[B, S, K, H]``, ``[B, S]``."""

    key: jax.Array
    value: jax.Array
    position: jax.Array


class SlidingCache:
    """Fits ``KVCache`` of ax-layers; it remembers ``keeps`` positions."""

    def __init__(self, keeps: int) -> None:
        self._keeps = keeps

    def init(
        self, *, batch_size: int, max_length: int, num_kv_heads: int, head_dim: int, dtype: jax.typing.DTypeLike
    ) -> Rows:
        rows = jnp.zeros((batch_size, self._keeps, num_kv_heads, head_dim), dtype)
        return Rows(rows, rows, jnp.full((batch_size, self._keeps), -1, jnp.int32))

    def update(
        self, state: Rows, key: jax.Array, value: jax.Array, positions: jax.Array, /
    ) -> tuple[Rows, jax.Array, jax.Array, jax.Array]:
        both = jax.tree.map(lambda *xs: jnp.concatenate(xs, axis=1), state, Rows(key, value, positions))
        newest = jnp.argsort(both.position, axis=1)[:, -self._keeps :]
        state = jax.tree.map(jax.vmap(lambda x, rows: x[rows]), both, Rows(newest, newest, newest))
        return state, *both
