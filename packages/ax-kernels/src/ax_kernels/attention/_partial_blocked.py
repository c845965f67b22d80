"""The two halves of attention by blocks, for keys that come a part at a time, from other devices for example.

The softmax of a query over all keys is put together from its softmax over each part of them: ``forward`` gives a part's output
and log-sum-exp, by which outputs are weighted. Of the gradients each part gives its summand too: ``backward`` needs
of all other parts no more than what the whole softmax gave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import jax
import jax.numpy as jnp

from ._blocked import backward, cut_in_blocks, cut_rows, forward, joined_rows


@final
@dataclass(frozen=True, kw_only=True)
class PartialBlocked:
    """`blocked` in halves. Options, blocks and errors are those of `blocked`; positions are always given."""

    block_q: int = 128
    block_k: int = 128

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
        """Of these keys alone: the output ``[B, T, N, H]`` and the log-sum-exp of the logits ``[B, N, T]``, float32.

        Where a query sees none of them they are zeros, and a finite number below -1e30.
        """
        cut = cut_in_blocks(
            query,
            key,
            value,
            scale=scale,
            causal=causal,
            window=window,
            logit_cap=logit_cap,
            query_positions=query_positions,
            key_positions=key_positions,
            query_segments=query_segments,
            key_segments=key_segments,
            block_q=self.block_q,
            block_k=self.block_k,
        )
        out, log_sum = forward(cut, dtype=jnp.float32)
        batch, length, num_heads, _ = query.shape
        return joined_rows(out, query), log_sum.reshape(batch, num_heads, -1)[..., :length]

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
        """The gradients of query, key and value on account of these keys, float32.

        ``out`` and ``log_sum_exp`` are those of the softmax over all keys, ``d_out`` the gradient of ``out``.
        """
        cut = cut_in_blocks(
            query,
            key,
            value,
            scale=scale,
            causal=causal,
            window=window,
            logit_cap=logit_cap,
            query_positions=query_positions,
            key_positions=key_positions,
            query_segments=query_segments,
            key_segments=key_segments,
            block_q=self.block_q,
            block_k=self.block_k,
        )
        (batch, length, num_heads, _), (_, key_length, num_kv_heads, _) = query.shape, key.shape
        block = cut.spec.block_q
        log_sum = log_sum_exp.reshape(batch, num_kv_heads, num_heads // num_kv_heads, length)
        dq, dk, dv = backward(
            cut,
            cut_rows(out, num_kv_heads=num_kv_heads, block=block),
            jnp.pad(log_sum, ((0, 0), (0, 0), (0, 0), (0, -length % block))),
            cut_rows(d_out, num_kv_heads=num_kv_heads, block=block),
            dtypes=(jnp.float32,) * 3,
        )
        return joined_rows(dq, query), dk[:, :key_length], dv[:, :key_length]
