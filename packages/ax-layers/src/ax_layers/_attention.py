"""Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245), of which multi-head and multi-query are cases.

What varies between models is a child: how positions are told, whether queries and keys are normalised, the attention
function itself, the cache, the projections. Shape suffixes: B batch, T query length, S key length, N query heads, K
key-value heads, H head dim, D model dim.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any, TypedDict, cast

import ax_config
import jax
import numpy as np
from ax_config import REQUIRED, Buildable, field, partial_for

from ._dot_product_attention import dot_product_attention
from ._dtypes import float_dtype
from ._kv_cache import DenseKVCache
from ._linear import Linear
from ._module import Module, Param, scoped
from ._param_spec import ParamSpec
from ._rotary import rotary
from .protocols import (
    ArrayFn,
    ArrayTree,
    AttentionBias,
    AttentionFn,
    AttentionMask,
    Initializer,
    KVCache,
    PositionEncoding,
    Projection,
    QKVProjection,
    SupportsAttentionOptions,
    SupportsWindow,
)


class Options(TypedDict, total=False):
    """What ``SupportsAttentionOptions`` takes beyond an ``AttentionFn``."""

    mask: AttentionMask
    bias: AttentionBias
    sinks: jax.Array


class Attention(Module):
    """Self-attention, causal unless told otherwise; fits ``SequenceLayer``."""

    class Config(ax_config.Config["Attention"]):
        """Heads, and the parts that attention is made of."""

        dim: int = REQUIRED
        num_heads: int
        head_dim: int
        num_kv_heads: int | None = None  # None: as many as num_heads
        scale: float | None = None  # of the logits; None: head_dim ** -0.5
        causal: bool = True
        window: int | None = None  # how many positions back a query sees, itself included; None: all
        mask: Buildable[AttentionMask] | None = None  # a further limit on what a query sees
        logit_cap: float | None = None
        bias: Buildable[AttentionBias] | None = None
        sinks: Buildable[Initializer] | None = None  # draws a learnt logit a head that draws attention to nothing
        query: Buildable[Projection] = field(default_factory=Linear.Config)
        key: Buildable[Projection] = field(default_factory=Linear.Config)
        value: Buildable[Projection] = field(default_factory=Linear.Config)
        output: Buildable[Projection] = field(default_factory=Linear.Config)
        qkv: Buildable[QKVProjection] | None = None  # in the place of query, key and value, which aren't built then
        gate: Buildable[Projection] | None = None  # opens or closes, by its sigmoid, each element before the output
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
        self._scale = cfg.head_dim**-0.5 if cfg.scale is None else cfg.scale
        self._causal, self._window, self._logit_cap = cfg.causal, cfg.window, cfg.logit_cap
        self._cache_dtype = float_dtype(cfg.cache_dtype)
        heads, kv_heads = (cfg.num_heads, cfg.head_dim), (self._num_kv_heads, cfg.head_dim)
        self.qkv: QKVProjection | None = None
        if cfg.qkv is not None:
            sizes = {"num_heads": cfg.num_heads, "num_kv_heads": self._num_kv_heads, "head_dim": cfg.head_dim}
            self.qkv = self.child("qkv", cfg.qkv, dim=cfg.dim, **sizes)
        else:
            inward = {"in_dim": cfg.dim, "in_axes": ("embed",)}
            to_heads = {"out_dim": heads, "out_axes": ("heads", None)}
            to_kv_heads = {"out_dim": kv_heads, "out_axes": ("kv_heads", None)}
            self.query = self.child("query", cfg.query, **inward, **to_heads)
            self.key_projection = self.child("key", cfg.key, **inward, **to_kv_heads)
            self.value = self.child("value", cfg.value, **inward, **to_kv_heads)
        self.output_projection = self.child(
            "output", cfg.output, in_dim=heads, out_dim=cfg.dim, in_axes=("heads", None), out_axes=("embed",)
        )
        self.gate: Projection | None = None
        if cfg.gate is not None:
            self.gate = self.child(
                "gate", cfg.gate, in_dim=cfg.dim, out_dim=heads, in_axes=("embed",), out_axes=("heads", None)
            )
        self.query_norm: ArrayFn | None = None
        self.key_norm: ArrayFn | None = None
        if cfg.qk_norm is not None:
            self.query_norm = self.child("query_norm", cfg.qk_norm, dim=cfg.head_dim)
            self.key_norm = self.child("key_norm", cfg.qk_norm, dim=cfg.head_dim)
        self.position_encoding = self.child("position_encoding", cfg.position_encoding)
        self.mask = None if cfg.mask is None else self.child("mask", cfg.mask)
        self.bias = None if cfg.bias is None else self.child("bias", cfg.bias)
        self.sinks: Param | None = None
        if cfg.sinks is not None:
            spec = ParamSpec((cfg.num_heads,), np.dtype(np.float32), ("heads",), cfg.sinks.build(), weight_decay=False)
            self.sinks = self.param("sinks", spec)
        self.attention_fn = self.child("attention_fn", cfg.attention_fn)
        given = {"mask": self.mask, "bias": self.bias, "sinks": self.sinks}
        _check_it_takes(self.attention_fn, [name for name, option in given.items() if option is not None])
        self.kv_cache = self.child("kv_cache", cfg.kv_cache)
        if isinstance(self.kv_cache, SupportsWindow) and self.kv_cache.window < (cfg.window or math.inf):
            seen = "everything" if cfg.window is None else f"{cfg.window} positions"
            raise ValueError(f"the cache keeps {self.kv_cache.window} positions, but the attention sees {seen}")

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T, D] → [B, T, D]``; what a position sees is in its own segment."""
        query, key, value = self._project(x, positions)
        return self._combine(x, self._attend(query, key, value, positions, positions, segments))

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
        keys, values = keys.astype(query.dtype), values.astype(query.dtype)
        return self._combine(x, self._attend(query, keys, values, positions, key_positions, None)), cache

    def _project(self, x: jax.Array, positions: jax.Array | None) -> tuple[jax.Array, jax.Array, jax.Array]:
        if self.qkv is not None:
            query, key, value = self.qkv(x)
        else:
            query, key, value = self.query(x), self.key_projection(x), self.value(x)
        # Placed at once, so that what the compiler gathers for the products is their input and not their weights.
        query = self.constrain(query, ("batch", "seq", "heads", None))
        key = self.constrain(key, ("batch", "seq", "kv_heads", None))
        value = self.save_point("value", self.constrain(value, ("batch", "seq", "kv_heads", None)))
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        query = self.position_encoding(query, positions=positions)
        key = self.position_encoding(key, positions=positions)
        return self.save_point("query", query), self.save_point("key", key), value

    def _attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        query_positions: jax.Array | None,
        key_positions: jax.Array | None,
        segments: jax.Array | None,
    ) -> jax.Array:
        options = Options()
        if self.mask is not None:
            options["mask"] = self.mask
        if self.bias is not None:
            options["bias"] = self.bias
        if self.sinks is not None:
            options["sinks"] = self.sinks.value
        return cast("SupportsAttentionOptions", self.attention_fn)(
            query,
            key,
            value,
            scale=self._scale,
            causal=self._causal,
            window=self._window,
            logit_cap=self._logit_cap,
            query_positions=query_positions,
            key_positions=key_positions,
            query_segments=segments,
            key_segments=segments,
            **options,
        )

    def _combine(self, x: jax.Array, context_BTNH: jax.Array) -> jax.Array:
        if self.gate is not None:
            context_BTNH = context_BTNH * jax.nn.sigmoid(self.gate(x)).astype(context_BTNH.dtype)
        context_BTNH = self.constrain(context_BTNH, ("batch", "seq", "heads", None))
        return self.output_projection(self.save_point("attention", context_BTNH))

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The projections', and ``12 · N · H · T`` for the attention in full."""
        return super().training_flops_per_token(seq_length) + 12 * self._num_heads * self._head_dim * seq_length


def _check_it_takes(attention_fn: AttentionFn, options: Sequence[str]) -> None:
    parameters = inspect.signature(attention_fn).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    if lacking := [option for option in options if option not in parameters]:
        raise ValueError(
            f"the attention function {attention_fn!r} takes no {' and no '.join(lacking)}, which this attention has; give "
            "it one that fits SupportsAttentionOptions, such as ax_layers.dot_product_attention"
        )
