"""The dense key-value cache: one slot a position, for every sequence."""

from __future__ import annotations

from typing import TypedDict

import ax_config
import jax
import jax.numpy as jnp


class DenseKVState(TypedDict):
    """Keys and values ``[B, S, K, H]``, and the position in each slot ``[B, S]`` (-1: empty)."""

    key: jax.Array
    value: jax.Array
    positions: jax.Array


class DenseKVCache:
    """Position ``p`` of a sequence lies in slot ``p``; fits ``KVCache``. Positions beyond ``max_length`` aren't kept."""

    class Config(ax_config.Config["DenseKVCache"]):
        """Nothing to choose."""

    def __init__(self, cfg: Config, /) -> None:
        pass

    def init(
        self, *, batch_size: int, max_length: int, num_kv_heads: int, head_dim: int, dtype: jax.typing.DTypeLike
    ) -> DenseKVState:
        """An empty state."""
        return empty_slots((batch_size, max_length, num_kv_heads, head_dim), dtype)

    def update(
        self, state: DenseKVState, key: jax.Array, value: jax.Array, positions: jax.Array, /
    ) -> tuple[DenseKVState, jax.Array, jax.Array, jax.Array]:
        """Write each row into its slot; rows at negative positions nowhere."""
        state = write_slots(state, key, value, positions, slots=positions)
        return state, state["key"], state["value"], state["positions"]


def empty_slots(shape: tuple[int, int, int, int], dtype: jax.typing.DTypeLike) -> DenseKVState:
    """Slots for keys and values of ``[B, S, K, H]``, all empty."""
    return DenseKVState(
        key=jnp.zeros(shape, dtype), value=jnp.zeros(shape, dtype), positions=jnp.full(shape[:2], -1, jnp.int32)
    )


def write_slots(
    state: DenseKVState, key: jax.Array, value: jax.Array, positions: jax.Array, *, slots: jax.Array
) -> DenseKVState:
    """``[B, T]`` rows written into ``slots`` ``[B, T]``; those whose slot is negative, or past the end, nowhere."""
    num_slots = state["positions"].shape[1]
    # An index past the end is dropped; a negative one would count from the end.
    slots = jnp.where(slots < 0, num_slots, slots)
    rows = jnp.arange(slots.shape[0])[:, None]

    def write(old: jax.Array, new: jax.Array) -> jax.Array:
        return old.at[rows, slots].set(new.astype(old.dtype), mode="drop")

    return DenseKVState(
        key=write(state["key"], key),
        value=write(state["value"], value),
        positions=write(state["positions"], positions),
    )
