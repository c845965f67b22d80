"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, §2.1): keys and values of all heads from one small vector.

A token is remembered by that vector, its *latent*, and by one key that tells where it stands and that all heads share
(decoupled rotary): 576 numbers a layer in DeepSeek-V3, where its 128 heads' keys and values would be 40,960.

Whole sequences, and pieces of them, are read as the equations say: keys and values are made of the latents. A single token
is cheaper the other way round. A head's logit is ``q · (W c) = (Wᵀ q) · c``, so its query is brought to the latents
instead, and what it sees comes back from there: attention with one head of keys, the latents themselves. Shape suffixes: B
batch, T query length, S key length, N heads, H a head's dims, C latent dims, R rotary dims.
"""

from __future__ import annotations

from typing import Any

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, field, partial_for

from ._dot_product_attention import dot_product_attention
from ._dtypes import float_dtype
from ._kv_cache import DenseKVCache
from ._linear import Linear
from ._module import Module, scoped
from ._rms_norm import RMSNorm
from ._rotary import rotary
from .protocols import ArrayFn, ArrayTree, AttentionFn, KVCache, PositionEncoding, Projection


class LatentAttention(Module):
    """Causal multi-head latent attention; fits ``SequenceLayer``. For low-rank queries give a ``LowRankProjection``."""

    class Config(ax_config.Config["LatentAttention"]):
        """Sizes, and the parts that attention is made of."""

        dim: int = REQUIRED
        num_heads: int
        head_dim: int  # of a head's query and key, without the rotary part
        rotary_dim: int  # the rotary part
        value_dim: int  # of a head's value
        latent_dim: int
        scale: float | None = None  # of the logits; None: (head_dim + rotary_dim) ** -0.5
        query: Buildable[Projection] = field(default_factory=Linear.Config)
        down: Buildable[Projection] = field(default_factory=Linear.Config)  # to the latent and the shared rotary key
        latent_norm: Buildable[ArrayFn] = field(default_factory=RMSNorm.Config)
        up: Buildable[Projection] = field(
            default_factory=Linear.Config
        )  # from the latent to the heads' keys and values
        output: Buildable[Projection] = field(default_factory=Linear.Config)
        position_encoding: Buildable[PositionEncoding] = field(default_factory=lambda: partial_for(rotary))
        attention_fn: Buildable[AttentionFn] = field(default_factory=lambda: partial_for(dot_product_attention))
        kv_cache: Buildable[KVCache[Any]] = field(default_factory=DenseKVCache.Config)
        cache_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._num_heads, self._head_dim, self._value_dim = cfg.num_heads, cfg.head_dim, cfg.value_dim
        self._latent_dim, self._rotary_dim = cfg.latent_dim, cfg.rotary_dim
        key_dim = cfg.head_dim + cfg.rotary_dim
        self._scale = key_dim**-0.5 if cfg.scale is None else cfg.scale
        self._cache_dtype = float_dtype(cfg.cache_dtype)
        self.query = self.child(
            "query",
            cfg.query,
            in_dim=cfg.dim,
            out_dim=(cfg.num_heads, key_dim),
            in_axes=("embed",),
            out_axes=("heads", None),
        )
        self.down = self.child(
            "down",
            cfg.down,
            in_dim=cfg.dim,
            out_dim=cfg.latent_dim + cfg.rotary_dim,
            in_axes=("embed",),
            out_axes=(None,),
        )
        self.latent_norm = self.child("latent_norm", cfg.latent_norm, dim=cfg.latent_dim)
        self.up = self.child(
            "up",
            cfg.up,
            in_dim=cfg.latent_dim,
            out_dim=(cfg.num_heads, cfg.head_dim + cfg.value_dim),
            in_axes=(None,),
            out_axes=("heads", None),
        )
        self.output_projection = self.child(
            "output",
            cfg.output,
            in_dim=(cfg.num_heads, cfg.value_dim),
            out_dim=cfg.dim,
            in_axes=("heads", None),
            out_axes=("embed",),
        )
        self.position_encoding = self.child("position_encoding", cfg.position_encoding)
        self.attention_fn = self.child("attention_fn", cfg.attention_fn)
        self.kv_cache = self.child("kv_cache", cfg.kv_cache)

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T, D] → [B, T, D]``; each position sees itself and what stands before it in its segment."""
        query_BTNH = self._query(x, positions)
        latent_BTC, key_BTR = self._compress(x, positions)
        return self._attend(query_BTNH, latent_BTC, key_BTR, positions, positions, segments)

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """An empty cache of latents and rotary keys."""
        # A cache keeps two vectors of one size, whatever they mean: the halves of the latent with its rotary key.
        state: ArrayTree = self.kv_cache.init(
            batch_size=batch_size,
            max_length=max_length,
            num_kv_heads=1,
            head_dim=-(-(self._latent_dim + self._rotary_dim) // 2),
            dtype=self._cache_dtype,
        )
        return state

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """The next ``[B, T, D]``, which see what the cache holds and each other."""
        query_BTNH = self._query(x, positions)
        latent_BTC, key_BTR = self._compress(x, positions)
        both_BTX = jnp.concatenate([latent_BTC, key_BTR], axis=-1)
        both_BTX = jnp.pad(both_BTX, ((0, 0), (0, 0), (0, both_BTX.shape[-1] % 2)))
        first, second = jnp.split(both_BTX[:, :, None], 2, axis=-1)
        cache, firsts, seconds, key_positions = self.kv_cache.update(cache, first, second, positions)
        both_BSX = jnp.concatenate([firsts, seconds], axis=-1)[:, :, 0].astype(x.dtype)
        latent_BSC = both_BSX[..., : self._latent_dim]
        key_BSR = both_BSX[..., self._latent_dim : self._latent_dim + self._rotary_dim]
        attend = self._attend_to_latents if x.shape[1] == 1 else self._attend
        return attend(query_BTNH, latent_BSC, key_BSR, positions, key_positions, None), cache

    def _query(self, x: jax.Array, positions: jax.Array | None) -> jax.Array:
        query = self.query(x)
        turned = self.position_encoding(query[..., self._head_dim :], positions=positions)
        query = jnp.concatenate([query[..., : self._head_dim], turned], axis=-1)
        return self.save_point("query", self.constrain(query, ("batch", "seq", "heads", None)))

    def _compress(self, x: jax.Array, positions: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        down = self.down(x)
        latent_BTC = self.latent_norm(down[..., : self._latent_dim])
        key_BT1R = self.position_encoding(down[..., None, self._latent_dim :], positions=positions)
        return self.save_point("latent", latent_BTC), self.save_point("rotary_key", key_BT1R[:, :, 0])

    def _attend(
        self,
        query_BTNH: jax.Array,
        latent_BSC: jax.Array,
        key_BSR: jax.Array,
        query_positions: jax.Array | None,
        key_positions: jax.Array | None,
        segments: jax.Array | None,
    ) -> jax.Array:
        key_value = self.up(latent_BSC)
        key, value = key_value[..., : self._head_dim], key_value[..., self._head_dim :]
        shared = jnp.broadcast_to(key_BSR[:, :, None], (*key.shape[:3], self._rotary_dim)).astype(key.dtype)
        key = jnp.concatenate([key, shared], axis=-1)
        key = self.save_point("key", self.constrain(key, ("batch", "seq", "heads", None)))
        value = self.save_point("value", self.constrain(value, ("batch", "seq", "heads", None)))
        # An attention function takes queries, keys and values of one size; zeros change neither logits nor sums.
        size = max(key.shape[-1], self._value_dim)
        context_BTNH = self.attention_fn(
            *(_widened(each, size) for each in (query_BTNH, key, value)),
            scale=self._scale,
            causal=True,
            query_positions=query_positions,
            key_positions=key_positions,
            query_segments=segments,
            key_segments=segments,
        )
        return self._combine(context_BTNH[..., : self._value_dim])

    def _attend_to_latents(
        self,
        query_BTNH: jax.Array,
        latent_BSC: jax.Array,
        key_BSR: jax.Array,
        query_positions: jax.Array | None,
        key_positions: jax.Array | None,
        segments: jax.Array | None,
    ) -> jax.Array:
        # A projection is linear, so what it makes of the identity is its matrix, whatever it is made of.
        up_CNH = self.up(jnp.eye(self._latent_dim, dtype=latent_BSC.dtype))
        to_key_CNH, to_value_CNH = up_CNH[..., : self._head_dim], up_CNH[..., self._head_dim :]
        query_BTNC = jnp.einsum("btnh,cnh->btnc", query_BTNH[..., : self._head_dim], to_key_CNH)
        key = jnp.concatenate([latent_BSC, key_BSR], axis=-1)[:, :, None]
        context_BTNC = self.attention_fn(
            jnp.concatenate([query_BTNC, query_BTNH[..., self._head_dim :]], axis=-1),
            key,
            key,
            scale=self._scale,
            causal=True,
            query_positions=query_positions,
            key_positions=key_positions,
            query_segments=segments,
            key_segments=segments,
        )
        return self._combine(jnp.einsum("btnc,cnh->btnh", context_BTNC[..., : self._latent_dim], to_value_CNH))

    def _combine(self, context_BTNH: jax.Array) -> jax.Array:
        context_BTNH = self.constrain(context_BTNH, ("batch", "seq", "heads", None))
        return self.output_projection(self.save_point("attention", context_BTNH))

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The projections', and ``6 · N · (H + R + value dims) · T`` for the attention in full."""
        size = self._head_dim + self._rotary_dim + self._value_dim
        return super().training_flops_per_token(seq_length) + 6 * self._num_heads * size * seq_length


def _widened(x: jax.Array, size: int) -> jax.Array:
    return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, size - x.shape[-1])))
