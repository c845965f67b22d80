"""Attention as one would write it on a blackboard."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def plain_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    /,
    *,
    scale: float,
    causal: bool,
    window: int | None = None,
    logit_cap: float | None = None,
    query_positions: jax.Array | None = None,
    key_positions: jax.Array | None = None,
    query_segments: jax.Array | None = None,
    key_segments: jax.Array | None = None,
) -> jax.Array:
    """Fits ``AttentionFn`` of ax-layers, for training: it lacks a window and a cap, and says so."""
    if window is not None or logit_cap is not None:
        raise ValueError("plain_attention has neither window nor logit_cap")
    key, value = (jnp.repeat(x, query.shape[2] // x.shape[2], axis=2) for x in (key, value))
    query_at = jnp.arange(query.shape[1])[None] if query_positions is None else query_positions
    key_at = jnp.arange(key.shape[1])[None] if key_positions is None else key_positions
    seen = key_at[:, None, :] >= 0
    if causal:
        seen = seen & (key_at[:, None, :] <= query_at[:, :, None])
    if query_segments is not None and key_segments is not None:
        seen = seen & (query_segments[:, :, None] == key_segments[:, None, :])
    logits = jnp.einsum("btnh,bsnh->bnts", query, key).astype(jnp.float32) * scale
    weights = jax.nn.softmax(logits, axis=-1, where=seen[:, None])
    return jnp.einsum("bnts,bsnh->btnh", weights.astype(value.dtype), value)
