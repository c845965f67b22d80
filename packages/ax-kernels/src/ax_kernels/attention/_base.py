"""Attention in plain XLA: what every other backend must equal. It holds all ``T × S`` logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ._visibility import MASKED, check


def base(
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
    """``softmax(query · key × scale) · value``, ``[B, T, N, H] × [B, S, K, H] × [B, S, K, H] → [B, T, N, H]``.

    ``N`` is a multiple of ``K``: that many query heads in a row share a key head (grouped-query attention, Ainslie et
    al. 2023). A query sees a key when all of these hold: not ``causal``, or the key's position is not after the
    query's; ``window`` is None, or the query's position minus the key's is less than it; both are in the same segment;
    the key's position is not negative (an empty cache slot). Positions ``[B, T]`` and ``[B, S]`` default to the row's
    index, segments to one segment. Logits are scaled, then capped as ``logit_cap * tanh(x / logit_cap)``; the softmax is
    in float32. A query that sees no key gives zeros, and gets and gives zero gradients.

    Raises:
        ValueError: shapes that don't fit, or an option out of its range.
    """
    problem = check(
        query,
        key,
        value,
        causal=causal,
        window=window,
        logit_cap=logit_cap,
        query_positions=query_positions,
        key_positions=key_positions,
        query_segments=query_segments,
        key_segments=key_segments,
    )
    batch, query_length, num_heads, head_dim = query.shape
    num_kv_heads = key.shape[2]
    # b batch, t queries, s keys, k key heads, g query heads of a key head, h head dim
    grouped = query.reshape(batch, query_length, num_kv_heads, num_heads // num_kv_heads, head_dim)
    logits = jnp.einsum("btkgh,bskh->bkgts", grouped, key, preferred_element_type=jnp.float32) * scale
    if logit_cap is not None:
        logits = logit_cap * jnp.tanh(logits / logit_cap)
    if problem.masks:
        seen = problem.rule.sees(problem.queries, problem.keys)[:, None, None]
        probabilities = jnp.where(seen, jax.nn.softmax(jnp.where(seen, logits, MASKED), axis=-1), 0.0)
    else:
        probabilities = jax.nn.softmax(logits, axis=-1)
    out = jnp.einsum("bkgts,bskh->btkgh", probabilities.astype(value.dtype), value, preferred_element_type=jnp.float32)
    return out.reshape(batch, query_length, num_heads, value.shape[3]).astype(query.dtype)
