"""Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245), of which multi-head and multi-query are cases.

What varies between models is a child: how positions are told, whether queries and keys are normalised, the attention
function itself, the cache, the projections. Shape suffixes: B batch, T query length, S key length, N query heads, K
key-value heads, H head dim, D model dim.
"""

from __future__ import annotations

from typing import Any

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field, partial_for

from ._dot_product_attention import dot_product_attention
from ._dtypes import float_dtype
from ._kv_cache import DenseKVCache
from ._linear import Linear
from ._module import Module, scoped
from ._rotary import rotary
from .protocols import ArrayFn, ArrayTree, AttentionFn, KVCache, PositionEncoding, Projection


class Attention(Module):
    """Causal self-attention; fits ``SequenceLayer``."""

    class Config(ax_config.Config["Attention"]):
        """Heads, and the parts that attention is made of."""

        dim: int = REQUIRED
        num_heads: int
        head_dim: int
        num_kv_heads: int | None = None  # None: as many as num_heads
        window: int | None = None  # how many positions back a query sees, itself included; None: all
        logit_cap: float | None = None
        query: Buildable[Projection] = field(default_factory=Linear.Config)
        key: Buildable[Projection] = field(default_factory=Linear.Config)
        value: Buildable[Projection] = field(default_factory=Linear.Config)
        output: Buildable[Projection] = field(default_factory=Linear.Config)
        qk_norm: Buildable[ArrayFn] | None = None  # built for queries and for keys, over the head dim
        position_encoding: Buildable[PositionEncoding] = field(default_factory=lambda: partial_for(rotary))
        attention_fn: Buildable[AttentionFn] = field(default_factory=lambda: partial_for(dot_product_attention))
        kv_cache: Buildable[KVCache[Any]] = field(default_factory=DenseKVCache.Config)
        cache_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._num_heads, self._head_dim = cfg.num_heads, cfg.head_dim
        self._num_kv_heads = cfg.num_heads if cfg.num_kv_heads is None else cfg.num_kv_heads
        if cfg.num_heads % self._num_kv_heads:
            raise ValueError(f"num_heads is a multiple of num_kv_heads, got {cfg.num_heads} and {self._num_kv_heads}")
        self._scale = cfg.head_dim**-0.5
        self._window, self._logit_cap = cfg.window, cfg.logit_cap
        self._cache_dtype = float_dtype(cfg.cache_dtype)
        heads, kv_heads = (cfg.num_heads, cfg.head_dim), (self._num_kv_heads, cfg.head_dim)
        self.query = self.child(
            "query", cfg.query, in_dim=cfg.dim, out_dim=heads, in_axes=("embed",), out_axes=("heads", None)
        )
        self.key_projection = self.child(
            "key", cfg.key, in_dim=cfg.dim, out_dim=kv_heads, in_axes=("embed",), out_axes=("kv_heads", None)
        )
        self.value = self.child(
            "value", cfg.value, in_dim=cfg.dim, out_dim=kv_heads, in_axes=("embed",), out_axes=("kv_heads", None)
        )
        self.output_projection = self.child(
            "output", cfg.output, in_dim=heads, out_dim=cfg.dim, in_axes=("heads", None), out_axes=("embed",)
        )
        self.query_norm: ArrayFn | None = None
        self.key_norm: ArrayFn | None = None
        if cfg.qk_norm is not None:
            self.query_norm = self.child("query_norm", cfg.qk_norm, dim=cfg.head_dim)
            self.key_norm = self.child("key_norm", cfg.qk_norm, dim=cfg.head_dim)
        self.position_encoding = self.child("position_encoding", cfg.position_encoding)
        self.attention_fn = self.child("attention_fn", cfg.attention_fn)
        self.kv_cache = self.child("kv_cache", cfg.kv_cache)

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T, D] → [B, T, D]``; each position sees itself and what stands before it in its segment."""
        query, key, value = self._project(x, positions)
        context_BTNH = self.attention_fn(
            query,
            key,
            value,
            scale=self._scale,
            causal=True,
            window=self._window,
            logit_cap=self._logit_cap,
            query_positions=positions,
            key_positions=positions,
            query_segments=segments,
            key_segments=segments,
        )
        return self._combine(context_BTNH)

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """An empty cache of keys and values."""
        state: ArrayTree = self.kv_cache.init(
            batch_size=batch_size,
            max_length=max_length,
            num_kv_heads=self._num_kv_heads,
            head_dim=self._head_dim,
            dtype=self._cache_dtype,
        )
        return state

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """The next ``[B, T, D]``, which see what the cache holds and each other."""
        query, key, value = self._project(x, positions)
        cache, keys, values, key_positions = self.kv_cache.update(cache, key, value, positions)
        context_BTNH = self.attention_fn(
            query,
            keys.astype(query.dtype),
            values.astype(query.dtype),
            scale=self._scale,
            causal=True,
            window=self._window,
            logit_cap=self._logit_cap,
            query_positions=positions,
            key_positions=key_positions,
        )
        return self._combine(context_BTNH), cache

    def _project(self, x: jax.Array, positions: jax.Array | None) -> tuple[jax.Array, jax.Array, jax.Array]:
        query, key, value = self.query(x), self.key_projection(x), self.value(x)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        query = self.position_encoding(query, positions=positions)
        key = self.position_encoding(key, positions=positions)
        query = self.save_point("query", self.constrain(query, ("batch", "seq", "heads", None)))
        key = self.save_point("key", self.constrain(key, ("batch", "seq", "kv_heads", None)))
        value = self.save_point("value", self.constrain(value, ("batch", "seq", "kv_heads", None)))
        return query, key, value

    def _combine(self, context_BTNH: jax.Array) -> jax.Array:
        context_BTNH = self.constrain(context_BTNH, ("batch", "seq", "heads", None))
        return self.output_projection(self.save_point("attention", context_BTNH))

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The projections', and ``12 · N · H · T`` for the attention in full."""
        return super().training_flops_per_token(seq_length) + 12 * self._num_heads * self._head_dim * seq_length
