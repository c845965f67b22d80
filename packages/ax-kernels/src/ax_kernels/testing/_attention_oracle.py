"""Attention and its gradient in NumPy float64, written from the definition and sharing no code with any backend."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ._attention_cases import AttentionOptions
from ._comparison import Float64, float64


class AttentionAnswer(NamedTuple):
    """The output, and the gradients of ``sum(output * output_gradient)``."""

    output: Float64
    query_gradient: Float64
    key_gradient: Float64
    value_gradient: Float64


def attention_oracle(
    query: jax.Array, key: jax.Array, value: jax.Array, output_gradient: jax.Array, /, options: AttentionOptions
) -> AttentionAnswer:
    """What attention of these arrays is, and what its gradients are."""
    q, d_out = float64(query), float64(output_gradient)
    group = query.shape[2] // key.shape[2]
    k, v = (np.repeat(float64(x), group, axis=2) for x in (key, value))
    seen = _seen(query.shape[1], key.shape[1], options)[:, None]

    scaled = np.einsum("btnh,bsnh->bnts", q, k) * options["scale"]
    cap = options["logit_cap"]
    logits = scaled if cap is None else cap * np.tanh(scaled / cap)
    weights = np.where(seen, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0.0)
    sums = weights.sum(axis=-1, keepdims=True)
    probabilities = weights / np.where(sums == 0.0, 1.0, sums)

    d_probabilities = np.einsum("btnh,bsnh->bnts", d_out, v)
    d_logits = probabilities * (d_probabilities - (probabilities * d_probabilities).sum(axis=-1, keepdims=True))
    if cap is not None:
        d_logits = d_logits / np.cosh(scaled / cap) ** 2
    d_logits = d_logits * options["scale"]

    def to_kv_heads(x: Float64) -> Float64:
        return np.asarray(x.reshape(*x.shape[:2], -1, group, x.shape[3]).sum(axis=3))

    return AttentionAnswer(
        output=np.einsum("bnts,bsnh->btnh", probabilities, v),
        query_gradient=np.einsum("bnts,bsnh->btnh", d_logits, k),
        key_gradient=to_kv_heads(np.einsum("bnts,btnh->bsnh", d_logits, q)),
        value_gradient=to_kv_heads(np.einsum("bnts,btnh->bsnh", probabilities, d_out)),
    )


def _seen(query_length: int, key_length: int, options: AttentionOptions) -> np.ndarray:
    def rows(x: jax.Array | None, length: int) -> np.ndarray:
        return np.arange(length)[None] if x is None else np.asarray(x)

    at = rows(options["query_positions"], query_length)[:, :, None]
    of = rows(options["key_positions"], key_length)[:, None, :]
    conditions = [np.ones((1, query_length, key_length), bool), of >= 0]
    if options["causal"]:
        conditions.append(of <= at)
    if options["window"] is not None:
        conditions.append(at - of < options["window"])
    if options["query_segments"] is not None and options["key_segments"] is not None:
        mine, theirs = np.asarray(options["query_segments"]), np.asarray(options["key_segments"])
        conditions.append(mine[:, :, None] == theirs[:, None, :])
    return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*conditions)))
