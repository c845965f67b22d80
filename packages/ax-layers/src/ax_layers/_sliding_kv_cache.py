"""The key-value cache of attention with a sliding window: a ring of as many slots as the window has positions."""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp

from ._kv_cache import DenseKVState, empty_slots, write_slots


class SlidingKVCache:
    """Position ``p`` lies in slot ``p mod window``, until ``p + window`` takes it; fits ``KVCache``.

    For attention whose window is not larger. Sequences are read piece by piece in order, without gaps. Fits
    ``SupportsWindow``.
    """

    class Config(ax_config.Config["SlidingKVCache"]):
        """How many of the latest positions to keep."""

        window: int

    def __init__(self, cfg: Config, /) -> None:
        if cfg.window < 1:
            raise ValueError(f"SlidingKVCache keeps at least 1 position, got a window of {cfg.window}")
        self.window = cfg.window

    def init(
        self, *, batch_size: int, max_length: int, num_kv_heads: int, head_dim: int, dtype: jax.typing.DTypeLike
    ) -> DenseKVState:
        """An empty state, no longer than the window."""
        return empty_slots((batch_size, min(max_length, self.window), num_kv_heads, head_dim), dtype)

    def update(
        self, state: DenseKVState, key: jax.Array, value: jax.Array, positions: jax.Array, /
    ) -> tuple[DenseKVState, jax.Array, jax.Array, jax.Array]:
        """Add the rows; of several, the first still see what the last push out."""
        num_slots = state["positions"].shape[1]
        kept = (positions >= 0) & (positions > positions.max(axis=1, keepdims=True) - num_slots)
        new = write_slots(state, key, value, positions, slots=jnp.where(kept, positions % num_slots, -1))
        if positions.shape[1] == 1:
            return new, new["key"], new["value"], new["positions"]

        def joined(old: jax.Array, added: jax.Array) -> jax.Array:
            return jnp.concatenate([old, added.astype(old.dtype)], axis=1)

        return new, joined(state["key"], key), joined(state["value"], value), joined(state["positions"], positions)
