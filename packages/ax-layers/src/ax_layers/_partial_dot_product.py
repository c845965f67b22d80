"""Attention to a part of the keys in plain XLA, at the cost of holding the logits of that part.

With ``P`` the part's share of the whole softmax, ``dS = P ∘ (dO Vᵀ − rowsum(dO ∘ O))`` (FlashAttention, Dao et al. 2022,
arXiv:2205.14135, appendix B). Letters: b batch, t queries, s keys, k key heads, g query heads of a key head, h head dim.
"""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp

from ._wide_einsum import wide_einsum

_UNSEEN = -1e38
_NOTHING = -1e35
"""The least that a maximum is taken to be: an unseen logit less it gives an exponential of exactly 0."""


class PartialDotProduct:
    """Fits ``PartialAttention``."""

    class Config(ax_config.Config["PartialDotProduct"]):
        """Nothing to choose."""

    def __init__(self, cfg: Config, /) -> None:
        pass

    def forward(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        /,
        *,
        scale: float,
        causal: bool,
        window: int | None,
        logit_cap: float | None,
        query_positions: jax.Array,
        key_positions: jax.Array,
        query_segments: jax.Array | None,
        key_segments: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        """See ``PartialAttention``."""
        sees = _sees(causal, window, query_positions, key_positions, query_segments, key_segments)
        logits = jnp.where(sees, _capped(_in_groups(query, key), key, scale, logit_cap), _UNSEEN)
        maximum = jnp.maximum(logits.max(axis=-1), _NOTHING)
        weights = jnp.exp(logits - maximum[..., None])
        total = weights.sum(axis=-1)
        total = jnp.where(total == 0.0, 1.0, total)
        shares = (weights / total[..., None]).astype(value.dtype)
        out = jnp.einsum("bkgts,bskh->btkgh", shares, value, preferred_element_type=jnp.float32)
        batch, length, num_heads, _ = query.shape
        log_sum_exp = (maximum + jnp.log(total)).reshape(batch, num_heads, length)
        return out.reshape(batch, length, num_heads, value.shape[-1]), log_sum_exp

    def backward(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        out: jax.Array,
        log_sum_exp: jax.Array,
        d_out: jax.Array,
        /,
        *,
        scale: float,
        causal: bool,
        window: int | None,
        logit_cap: float | None,
        query_positions: jax.Array,
        key_positions: jax.Array,
        query_segments: jax.Array | None,
        key_segments: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """See ``PartialAttention``."""
        q_btkgh, out_btkgh, d_out_btkgh = (_in_groups(x, key) for x in (query, out, d_out))
        (batch, length, _, _), (num_kv_heads, group) = query.shape, q_btkgh.shape[2:4]
        sees = _sees(causal, window, query_positions, key_positions, query_segments, key_segments)
        capped = _capped(q_btkgh, key, scale, logit_cap)
        logits = jnp.where(sees, capped, _UNSEEN)
        shares = jnp.exp(logits - log_sum_exp.reshape(batch, num_kv_heads, group, length, 1))
        rowsum = wide_einsum("btkgh,btkgh->bkgt", d_out_btkgh, out_btkgh)
        d_logits = shares * (wide_einsum("btkgh,bskh->bkgts", d_out_btkgh, value) - rowsum[..., None])
        if logit_cap is not None:
            d_logits = d_logits * (1.0 - jnp.square(capped / logit_cap))
        shares, d_logits = shares.astype(query.dtype), (d_logits * scale).astype(query.dtype)
        d_query = wide_einsum("bkgts,bskh->btkgh", d_logits, key).reshape(query.shape)
        d_key = wide_einsum("bkgts,btkgh->bskh", d_logits, q_btkgh)
        return d_query, d_key, wide_einsum("bkgts,btkgh->bskh", shares, d_out_btkgh)


def _in_groups(x: jax.Array, key: jax.Array) -> jax.Array:
    batch, length, num_heads, size = x.shape
    return x.reshape(batch, length, key.shape[2], num_heads // key.shape[2], size)


def _capped(q_btkgh: jax.Array, key: jax.Array, scale: float, cap: float | None) -> jax.Array:
    logits = wide_einsum("btkgh,bskh->bkgts", q_btkgh, key) * scale
    return logits if cap is None else cap * jnp.tanh(logits / cap)


def _sees(
    causal: bool,
    window: int | None,
    query_positions: jax.Array,
    key_positions: jax.Array,
    query_segments: jax.Array | None,
    key_segments: jax.Array | None,
) -> jax.Array:
    """``[b, 1, 1, t, s]``."""
    query_at, key_at = query_positions[:, :, None], key_positions[:, None, :]
    sees = jnp.broadcast_to(key_at >= 0, (key_at.shape[0], query_at.shape[1], key_at.shape[2]))
    if causal:
        sees = sees & (key_at <= query_at)
    if window is not None:
        sees = sees & (query_at - key_at < window)
    if query_segments is not None and key_segments is not None:
        sees = sees & (query_segments[:, :, None] == key_segments[:, None, :])
    return sees[:, None, None]
