"""Which keys a query sees: the one part of attention that every backend must agree on to the bit.

`Rows` says where a run of queries or keys stands, `Rule` what a query at one place may see of a key at another. A
backend asks `Rule.sees` for the mask of whatever rows it holds (all of them, or one block's), so the conditions are
written once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

MASKED = -1e38
"""The logit of an unseen key: finite, so that differences stay finite, and far below any real logit."""


class Rows(NamedTuple):
    """Where rows stand, each array ``[B, L]`` or ``[1, L]`` int32; a negative position marks an empty row."""

    positions: jax.Array
    segments: jax.Array | None


class Rule(NamedTuple):
    """What is static about visibility."""

    causal: bool
    window: int | None

    def sees(self, queries: Rows, keys: Rows) -> jax.Array:
        """``[B or 1, T, S]``: true where the query of that row sees the key of that column."""
        query_positions, key_positions = queries.positions[:, :, None], keys.positions[:, None, :]
        seen = key_positions >= 0
        if self.causal:
            seen = seen & (key_positions <= query_positions)
        if self.window is not None:
            seen = seen & (query_positions - key_positions < self.window)
        if queries.segments is not None and keys.segments is not None:
            seen = seen & (queries.segments[:, :, None] == keys.segments[:, None, :])
        return jnp.broadcast_to(seen, jnp.broadcast_shapes(seen.shape, (1, queries.positions.shape[1], 1)))


class Problem(NamedTuple):
    """A call's arguments, checked, with positions filled in."""

    queries: Rows
    keys: Rows
    rule: Rule
    masks: bool
    """False when it is known without running that every query sees every key."""


def check(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    causal: bool,
    window: int | None,
    logit_cap: float | None,
    query_positions: jax.Array | None,
    key_positions: jax.Array | None,
    query_segments: jax.Array | None,
    key_segments: jax.Array | None,
) -> Problem:
    """Check the arguments that all backends share; raises ValueError that names the one at fault."""
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ValueError(f"attention wants query [B, T, N, H] and key, value [B, S, K, H]; got {shapes}")
    batch, query_length, num_heads, head_dim = query.shape
    if key.shape[0] != batch or key.shape[3] != head_dim or value.shape[:3] != key.shape[:3]:
        raise ValueError(
            f"attention's query, key and value disagree on batch, key length, key heads or head dim; got {shapes}"
        )
    if num_heads % key.shape[2]:
        raise ValueError(f"attention wants query heads a multiple of key heads; got {num_heads} and {key.shape[2]}")
    if window is not None and window < 1:
        raise ValueError(f"attention's window must be at least 1 (a query then sees its own position); got {window}")
    if logit_cap is not None and not logit_cap > 0:
        raise ValueError(f"attention's logit_cap must be positive, or None for no cap; got {logit_cap}")
    if (query_segments is None) != (key_segments is None):
        raise ValueError("attention wants both query_segments and key_segments, or neither")
    key_length = key.shape[1]
    for name, array, length in (
        ("query_positions", query_positions, query_length),
        ("key_positions", key_positions, key_length),
        ("query_segments", query_segments, query_length),
        ("key_segments", key_segments, key_length),
    ):
        if array is not None and (array.shape != (batch, length) or not jnp.issubdtype(array.dtype, jnp.integer)):
            raise ValueError(
                f"attention wants {name} of shape {(batch, length)}, integers; got {array.shape} {array.dtype}"
            )
    return Problem(
        queries=Rows(_or_arange(query_positions, query_length), _as_int32(query_segments)),
        keys=Rows(_or_arange(key_positions, key_length), _as_int32(key_segments)),
        rule=Rule(causal, window),
        masks=causal or window is not None or key_positions is not None or key_segments is not None,
    )


def _or_arange(positions: jax.Array | None, length: int) -> jax.Array:
    return jnp.arange(length, dtype=jnp.int32)[None] if positions is None else positions.astype(jnp.int32)


def _as_int32(segments: jax.Array | None) -> jax.Array | None:
    return None if segments is None else segments.astype(jnp.int32)
