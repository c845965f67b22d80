"""Attention to another sequence (Vaswani et al. 2017, arXiv:1706.03762): an encoder's output, an image's patches.

What it attends to is turned into keys and values once, by ``remember``, and then asked as often as there are tokens. Nothing is
causal here, and no position is encoded: what stands where is the business of whoever made the other sequence.
"""

from __future__ import annotations

from typing import TypedDict

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field, partial_for

from ._dot_product_attention import dot_product_attention
from ._linear import Linear
from ._module import Module, scoped
from .protocols import ArrayFn, AttentionFn, Projection


class Memory(TypedDict):
    """Keys and values ``[B, S, K, H]`` of another sequence, and its positions ``[B, S]``, -1 where it is padded."""

    key: jax.Array
    value: jax.Array
    positions: jax.Array


class CrossAttention(Module):
    """Every row of one sequence sees all of another."""

    class Config(ax_config.Config["CrossAttention"]):
        """Heads, and the parts."""

        dim: int = REQUIRED
        context_dim: int | None = None  # the other sequence's width; None: dim
        num_heads: int
        head_dim: int
        num_kv_heads: int | None = None  # None: as many as num_heads
        query: Buildable[Projection] = field(default_factory=Linear.Config)
        key: Buildable[Projection] = field(default_factory=Linear.Config)
        value: Buildable[Projection] = field(default_factory=Linear.Config)
        output: Buildable[Projection] = field(default_factory=Linear.Config)
        qk_norm: Buildable[ArrayFn] | None = None  # built for queries and for keys, over the head dim
        attention_fn: Buildable[AttentionFn] = field(default_factory=lambda: partial_for(dot_product_attention))

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        num_kv_heads = cfg.num_heads if cfg.num_kv_heads is None else cfg.num_kv_heads
        if cfg.num_heads % num_kv_heads:
            raise ValueError(f"num_heads is a multiple of num_kv_heads, got {cfg.num_heads} and {num_kv_heads}")
        self._width, self._scale = cfg.num_heads * cfg.head_dim, cfg.head_dim**-0.5
        context_dim = cfg.dim if cfg.context_dim is None else cfg.context_dim
        heads, kv_heads = (cfg.num_heads, cfg.head_dim), (num_kv_heads, cfg.head_dim)
        self.query = self.child(
            "query", cfg.query, in_dim=cfg.dim, out_dim=heads, in_axes=("embed",), out_axes=("heads", None)
        )
        self.key_projection = self.child(
            "key", cfg.key, in_dim=context_dim, out_dim=kv_heads, in_axes=("embed",), out_axes=("kv_heads", None)
        )
        self.value = self.child(
            "value", cfg.value, in_dim=context_dim, out_dim=kv_heads, in_axes=("embed",), out_axes=("kv_heads", None)
        )
        self.output_projection = self.child(
            "output", cfg.output, in_dim=heads, out_dim=cfg.dim, in_axes=("heads", None), out_axes=("embed",)
        )
        self.query_norm = None if cfg.qk_norm is None else self.child("query_norm", cfg.qk_norm, dim=cfg.head_dim)
        self.key_norm = None if cfg.qk_norm is None else self.child("key_norm", cfg.qk_norm, dim=cfg.head_dim)
        self.attention_fn = self.child("attention_fn", cfg.attention_fn)

    @scoped
    def __call__(self, x: jax.Array, context: jax.Array, /, *, context_positions: jax.Array | None = None) -> jax.Array:
        """``[B, T, D] × [B, S, C] → [B, T, D]``; a row of the context at a negative position is padding, unseen."""
        return self._recall(x, self._remember(context, context_positions))

    @scoped
    def remember(self, context: jax.Array, /, *, context_positions: jax.Array | None = None) -> Memory:
        """What ``recall`` needs of ``[B, S, C]``."""
        return self._remember(context, context_positions)

    @scoped
    def recall(self, x: jax.Array, memory: Memory, /) -> jax.Array:
        """``[B, T, D] → [B, T, D]``, looking at what was remembered."""
        return self._recall(x, memory)

    def _remember(self, context: jax.Array, positions: jax.Array | None) -> Memory:
        key, value = self.key_projection(context), self.value(context)
        if self.key_norm is not None:
            key = self.key_norm(key)
        if positions is None:
            positions = jax.lax.broadcasted_iota("int32", context.shape[:2], 1)
        axes = ("batch", "seq", "kv_heads", None)
        return Memory(key=self.constrain(key, axes), value=self.constrain(value, axes), positions=positions)

    def _recall(self, x: jax.Array, memory: Memory) -> jax.Array:
        query = self.query(x)
        if self.query_norm is not None:
            query = self.query_norm(query)
        query = self.save_point("query", self.constrain(query, ("batch", "seq", "heads", None)))
        context_BTNH = self.attention_fn(
            query,
            memory["key"].astype(query.dtype),
            memory["value"].astype(query.dtype),
            scale=self._scale,
            causal=False,
            key_positions=memory["positions"],
        )
        context_BTNH = self.constrain(context_BTNH, ("batch", "seq", "heads", None))
        return self.output_projection(self.save_point("attention", context_BTNH))

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The projections', and ``12 · N · H · S`` for the attention, as if both sequences were of one length."""
        return super().training_flops_per_token(seq_length) + 12 * self._width * seq_length
