"""Attention in plain XLA: the whole contract of ``AttentionFn`` on any backend, at the cost of holding all logits.

``jax.nn.dot_product_attention`` is not used: it caps no logits, knows no positions, gives queries that see nothing a mean of
all values, fails in bfloat16 under strict dtype promotion, and groups heads where there is nothing to group, which
costs a sixth of the time on a CPU.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ._wide_einsum import wide_einsum
from .protocols import AttentionBias, AttentionMask


def dot_product_attention(
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
    mask: AttentionMask | None = None,
    bias: AttentionBias | None = None,
    sinks: jax.Array | None = None,
) -> jax.Array:
    """Fits ``AttentionFn`` and ``SupportsAttentionOptions``; values may be narrower than keys.

    Raises:
        ValueError: Only one of ``query_segments`` and ``key_segments`` is given.
    """
    if (query_segments is None) != (key_segments is None):
        raise ValueError("attention takes query_segments and key_segments together; only one was given")
    query_at_BT1 = _positions(query_positions, query.shape[1])[:, :, None]
    key_at_B1S = _positions(key_positions, key.shape[1])[:, None, :]
    conditions: list[jax.Array] = []
    if key_positions is not None:
        conditions.append(key_at_B1S >= 0)
    if causal:
        conditions.append(key_at_B1S <= query_at_BT1)
    if window is not None:
        conditions.append(query_at_BT1 - key_at_B1S < window)
    if query_segments is not None and key_segments is not None:
        conditions.append(query_segments[:, :, None] == key_segments[:, None, :])
    if mask is not None:
        conditions.append(mask(query_at_BT1, key_at_B1S))

    sees_BTS = None
    for condition in conditions:
        sees_BTS = condition if sees_BTS is None else sees_BTS & condition
    bias_BNTS = None if bias is None else bias(query_at_BT1, key_at_B1S, num_heads=query.shape[2])
    out = _attend(query, key, value, sees_BTS, bias_BNTS, sinks, scale=scale, cap=logit_cap)
    unmasked = query_segments is None and window is None and mask is None
    in_order = query_positions is None and key_positions is None and unmasked
    if sees_BTS is None or in_order:
        return out  # every query sees a key
    return jnp.where(sees_BTS.any(axis=-1)[:, :, None, None], out, jnp.zeros_like(out))


def _positions(positions: jax.Array | None, length: int) -> jax.Array:
    return jnp.arange(length, dtype=jnp.int32)[None] if positions is None else positions


def _attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    sees_BTS: jax.Array | None,
    bias_BNTS: jax.Array | None,
    sinks_N: jax.Array | None,
    *,
    scale: float,
    cap: float | None,
) -> jax.Array:
    (num_batch, length, num_heads, head_dim), num_kv_heads = query.shape, key.shape[2]
    grouped = num_heads != num_kv_heads
    heads = (num_kv_heads, num_heads // num_kv_heads) if grouped else (num_heads,)
    if grouped:
        query = query.reshape(num_batch, length, *heads, head_dim)
    to_logits = "btkgh,bskh->bkgts" if grouped else "btnh,bsnh->bnts"
    to_output = "bkgts,bskh->btkgh" if grouped else "bnts,bsnh->btnh"

    logits = wide_einsum(to_logits, query, key) * scale
    if cap is not None:
        logits = cap * jnp.tanh(logits / cap)
    if bias_BNTS is not None:
        logits = logits + bias_BNTS.reshape(bias_BNTS.shape[0], *heads, *bias_BNTS.shape[2:])
    if sees_BTS is not None:
        sees = sees_BTS[:, None, None] if grouped else sees_BTS[:, None]
        logits = jnp.where(sees, logits, float(np.finfo(np.float32).min))
    if sinks_N is not None:
        sinks = jnp.broadcast_to(sinks_N.reshape(1, *heads, 1, 1), (*logits.shape[:-1], 1))
        logits = jnp.concatenate([logits, sinks], axis=-1)
    weights = jax.nn.softmax(logits, axis=-1)[..., : key.shape[1]].astype(value.dtype)
    return jnp.einsum(to_output, weights, value).reshape(num_batch, length, num_heads, value.shape[-1])
