"""Attention to what is near: a sliding window (Beltagy et al. 2020, arXiv:2004.05150) and its relatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
from ax_config import Config, partial_for, setting
from ax_layers import Attention
from ax_layers.protocols import AttentionFn

ConfigT = TypeVar("ConfigT", bound=Config[object])

_UNSEEN = -1e30


def near_attention(
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
    span: int = 1_024,
    shape: Literal["sliding", "chunk", "dilated"] = "sliding",
    dilation: int = 1,
    sinks: int = 0,
) -> jax.Array:
    """Fits ``AttentionFn``; of what that lets a query see, this leaves what is near, and the first ``sinks`` positions.

    Near is: "sliding", the last ``span`` positions; "chunk", those in the same ``span`` of the text, end to end; "dilated",
    the last ``span`` of every ``dilation``-th position. Sinks are those of Xiao et al. 2023, arXiv:2309.17453.
    """
    query_at, key_at = _positions(query_positions, query)[:, :, None], _positions(key_positions, key)[:, None, :]
    back = query_at - key_at
    sees = (key_at >= 0) & (back >= 0) if causal else key_at >= 0
    if window is not None:
        sees &= back < window
    if query_segments is not None and key_segments is not None:
        sees &= query_segments[:, :, None] == key_segments[:, None, :]
    if shape == "sliding":
        near = back < span
    elif shape == "chunk":
        near = query_at // span == key_at // span
    else:
        near = (back < span * dilation) & (back % dilation == 0)
    sees_BTS = sees & (near | (key_at < sinks))

    group = query.shape[2] // key.shape[2]
    query_BTKGH = query.reshape(*query.shape[:2], key.shape[2], group, query.shape[3])
    logits = jnp.einsum("btkgh,bskh->bkgts", query_BTKGH, key).astype(jnp.float32) * scale
    if logit_cap is not None:
        logits = logit_cap * jnp.tanh(logits / logit_cap)
    weights = jax.nn.softmax(jnp.where(sees_BTS[:, None, None], logits, _UNSEEN), axis=-1)
    weights = jnp.where(sees_BTS[:, None, None], weights, 0.0).astype(value.dtype)
    return jnp.einsum("bkgts,bskh->btkgh", weights, value).reshape(query.shape)


def _positions(given: jax.Array | None, x: jax.Array) -> jax.Array:
    return jnp.arange(x.shape[1], dtype=jnp.int32)[None] if given is None else given


VARIANTS: Mapping[str, Config[AttentionFn]] = {
    "16": partial_for(near_attention, span=16),
    "256": partial_for(near_attention, span=256),
    "1024": partial_for(near_attention),
    "4096": partial_for(near_attention, span=4_096),
    "16 and 4 sinks": partial_for(near_attention, span=16, sinks=4),
    "256 and 4 sinks": partial_for(near_attention, span=256, sinks=4),
    "chunks of 128": partial_for(near_attention, span=128, shape="chunk"),
    "chunks of 128 and 1 sink": partial_for(near_attention, span=128, shape="chunk", sinks=1),
    "16 of every other": partial_for(near_attention, span=16, shape="dilated", dilation=2),
    "16 of every fourth and 1 sink": partial_for(near_attention, span=16, shape="dilated", dilation=4, sinks=1),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """Every attention sees what is near."""
    return setting(Attention, attention_fn=VARIANTS[variant])(tree)
