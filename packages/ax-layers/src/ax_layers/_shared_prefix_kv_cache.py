"""A key-value cache for sequences that begin alike: the common beginning is kept once, whatever the batch.

Many requests share a system prompt, and samples of one prompt share all of it. Whoever fills the cache reads the beginning in
one row, with the others' positions negative, and then lets every row go on at position ``length``:

    logits, cache = decoder.prefill(params, prefix_in_row_0, lengths_of_the_prefix_and_zeros, cache)
    cache = {**cache, "lengths": jnp.full(batch_size, length, jnp.int32)}
    logits, cache = decoder.prefill(params, rests, lengths_of_the_rests, cache)
"""

from __future__ import annotations

from typing import TypedDict

import ax_config
import jax
import jax.numpy as jnp

from ._kv_cache import DenseKVState, empty_slots, write_slots


class SharedPrefixKVState(TypedDict):
    """The common beginning, a batch of one, and what follows it in each sequence."""

    prefix: DenseKVState
    rest: DenseKVState


class SharedPrefixKVCache:
    """Positions below ``length`` are every sequence's; fits ``KVCache``. Rows that write one of them have to agree."""

    class Config(ax_config.Config["SharedPrefixKVCache"]):
        """How long the common beginning is."""

        length: int

    def __init__(self, cfg: Config, /) -> None:
        if cfg.length < 1:
            raise ValueError(f"a common beginning has at least one position, got {cfg.length}")
        self._length = cfg.length

    def init(
        self, *, batch_size: int, max_length: int, num_kv_heads: int, head_dim: int, dtype: jax.typing.DTypeLike
    ) -> SharedPrefixKVState:
        """An empty state.

        Raises:
            ValueError: ``max_length`` leaves no room after the common beginning.
        """
        if max_length <= self._length:
            raise ValueError(f"max_length {max_length} leaves no room after a common beginning of {self._length}")
        entry = (num_kv_heads, head_dim)
        return SharedPrefixKVState(
            prefix=empty_slots((1, self._length, *entry), dtype),
            rest=empty_slots((batch_size, max_length - self._length, *entry), dtype),
        )

    def update(
        self, state: SharedPrefixKVState, key: jax.Array, value: jax.Array, positions: jax.Array, /
    ) -> tuple[SharedPrefixKVState, jax.Array, jax.Array, jax.Array]:
        """Write each row into its slot, of the beginning or of its sequence; rows at negative positions nowhere."""
        num_batch = positions.shape[0]
        common = (positions >= 0) & (positions < self._length)

        def in_one_row(x: jax.Array) -> jax.Array:
            return x.reshape(1, -1, *x.shape[2:])

        prefix = write_slots(
            state["prefix"],
            *map(in_one_row, (key, value, positions)),
            slots=in_one_row(jnp.where(common, positions, -1)),
        )
        own = jnp.where(positions >= self._length, positions - self._length, -1)
        rest = write_slots(state["rest"], key, value, positions, slots=own)

        def joined(first: jax.Array, then: jax.Array) -> jax.Array:
            return jnp.concatenate([jnp.broadcast_to(first, (num_batch, *first.shape[1:])), then], axis=1)

        return (
            SharedPrefixKVState(prefix=prefix, rest=rest),
            joined(prefix["key"], rest["key"]),
            joined(prefix["value"], rest["value"]),
            joined(prefix["positions"], rest["positions"]),
        )
