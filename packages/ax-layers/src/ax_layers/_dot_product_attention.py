"""Attention by ``jax.nn.dot_product_attention``, brought to the whole contract of ``AttentionFn``.

What that function lacks is added here: masks from positions and segments, a cap on the logits, and zeros for queries
that see nothing. The plain causal case is left to it, so that whatever it does well on a backend is kept.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


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
) -> jax.Array:
    """Fits ``AttentionFn`` with all its options, on any backend. Holds the ``T × S`` logits.

    Raises:
        ValueError: Only one of ``query_segments`` and ``key_segments`` is given.
    """
    if (query_segments is None) != (key_segments is None):
        raise ValueError("attention takes query_segments and key_segments together; only one was given")
    in_order = query_positions is None and key_positions is None and query_segments is None and window is None
    if in_order and logit_cap is None:
        return jax.nn.dot_product_attention(query, key, value, scale=scale, is_causal=causal)

    query_at_BT1 = _positions(query_positions, query.shape[1])[:, :, None]
    key_at_B1S = _positions(key_positions, key.shape[1])[:, None, :]
    sees_BTS = key_at_B1S >= jnp.zeros_like(query_at_BT1)
    if causal:
        sees_BTS &= key_at_B1S <= query_at_BT1
    if window is not None:
        sees_BTS &= query_at_BT1 - key_at_B1S < window
    if query_segments is not None and key_segments is not None:
        sees_BTS &= query_segments[:, :, None] == key_segments[:, None, :]

    if logit_cap is None:
        out = jax.nn.dot_product_attention(query, key, value, scale=scale, mask=sees_BTS[:, None])
    else:
        out = _capped(query, key, value, sees_BTS, scale=scale, cap=logit_cap)
    return jnp.where(sees_BTS.any(axis=-1)[:, :, None, None], out, jnp.zeros_like(out))


def _positions(positions: jax.Array | None, length: int) -> jax.Array:
    return jnp.arange(length, dtype=jnp.int32)[None] if positions is None else positions


def _capped(
    query: jax.Array, key: jax.Array, value: jax.Array, sees_BTS: jax.Array, *, scale: float, cap: float
) -> jax.Array:
    num_batch, length, num_heads, head_dim = query.shape
    num_kv_heads = key.shape[2]
    query_BTKGH = query.reshape(num_batch, length, num_kv_heads, num_heads // num_kv_heads, head_dim)
    logits = jnp.einsum("btkgh,bskh->bkgts", query_BTKGH, key, preferred_element_type=jnp.float32)
    logits = cap * jnp.tanh(logits * (scale / cap))
    logits = jnp.where(sees_BTS[:, None, None], logits, float(np.finfo(np.float32).min))
    weights = jax.nn.softmax(logits, axis=-1).astype(value.dtype)
    return jnp.einsum("bkgts,bskh->btkgh", weights, value).reshape(query.shape)
