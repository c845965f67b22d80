"""Gated DeltaNet: a memory that forgets and corrects itself, in the place of attention (arXiv:2412.06464; as in Qwen3-Next).

Queries and keys pass a short convolution and are brought to unit length; the input sets, head by head and row by row, how much
of the memory remains and how far what it holds under the key is corrected. A head of queries and keys may serve several of
values. The result is normalised head by head and gated.

Shape suffixes: B batch, T length, K heads of queries and keys, N heads of values, S key dim, H value dim, D model dim.
"""

# ruff: noqa: ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

from typing import cast

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, field, partial_for

from . import initializers
from ._causal_conv import CausalConv
from ._convolved_projection import ConvolvedProjection
from ._delta_rule import delta_rule
from ._dtypes import float_dtype
from ._gated_norm import GatedRMSNorm
from ._linear import Linear
from ._module import Module, scoped
from ._param_spec import ParamSpec
from .protocols import ArrayTree, DeltaRuleFn, GatedArrayFn, Initializer, Projection, SequenceProjection

_EPS = 1e-6  # keeps the length of a key from zero; part of the published models


def _convolved() -> ConvolvedProjection.Config:
    return ConvolvedProjection.Config(conv=CausalConv.Config(use_bias=False))


class GatedDelta(Module):
    """The gated delta rule as a layer; fits ``SequenceLayer``. Positions are told by order alone."""

    class Config(ax_config.Config["GatedDelta"]):
        """Heads and their sizes, and the parts."""

        dim: int = REQUIRED
        num_key_heads: int
        key_dim: int
        num_value_heads: int
        value_dim: int
        query: Buildable[SequenceProjection] = field(default_factory=_convolved)
        key: Buildable[SequenceProjection] = field(default_factory=_convolved)
        value: Buildable[SequenceProjection] = field(default_factory=_convolved)
        gate: Buildable[Projection] = field(default_factory=Linear.Config)
        step: Buildable[Projection] = field(default_factory=Linear.Config)
        beta: Buildable[Projection] = field(default_factory=Linear.Config)
        output: Buildable[Projection] = field(default_factory=Linear.Config)
        delta_rule_fn: Buildable[DeltaRuleFn] = field(default_factory=lambda: partial_for(delta_rule))
        norm: Buildable[GatedArrayFn] = field(default_factory=lambda: GatedRMSNorm.Config(gate_first=False))
        decay_initializer: Buildable[Initializer] = field(default_factory=lambda: partial_for(initializers.log_uniform))
        step_initializer: Buildable[Initializer] = field(default_factory=lambda: partial_for(initializers.ones))
        param_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.num_value_heads % cfg.num_key_heads:
            raise ValueError(
                f"num_value_heads is a multiple of num_key_heads, got {cfg.num_value_heads} and {cfg.num_key_heads}"
            )
        self._state = (cfg.num_value_heads, cfg.key_dim, cfg.value_dim)
        keys, key_axes = (cfg.num_key_heads, cfg.key_dim), ("kv_heads", None)
        values, value_axes = (cfg.num_value_heads, cfg.value_dim), ("heads", None)
        inward = {"in_dim": cfg.dim, "in_axes": ("embed",)}
        self._projections = {
            "query": self.child("query", cfg.query, **inward, out_dim=keys, out_axes=key_axes),
            "key": self.child("key", cfg.key, **inward, out_dim=keys, out_axes=key_axes),
            "value": self.child("value", cfg.value, **inward, out_dim=values, out_axes=value_axes),
        }
        self.gate = self.child("gate", cfg.gate, **inward, out_dim=values, out_axes=value_axes)
        self.step = self.child("step", cfg.step, **inward, out_dim=cfg.num_value_heads, out_axes=("heads",))
        self.beta = self.child("beta", cfg.beta, **inward, out_dim=cfg.num_value_heads, out_axes=("heads",))
        self.delta_rule_fn = self.child("delta_rule_fn", cfg.delta_rule_fn)
        self.norm = self.child("norm", cfg.norm, dim=cfg.value_dim, axes=("norm",))
        self.output_projection = self.child(
            "output", cfg.output, in_dim=values, in_axes=value_axes, out_dim=cfg.dim, out_axes=("embed",)
        )

        def by_head(initializer: Initializer) -> ParamSpec:
            return ParamSpec((cfg.num_value_heads,), dtype, ("heads",), initializer, weight_decay=False)

        dtype = float_dtype(cfg.param_dtype)
        self.log_decay = self.param("log_decay", by_head(cfg.decay_initializer.build()))
        self.step_bias = self.param("step_bias", by_head(cfg.step_initializer.build()))

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T, D] → [B, T, D]``; each position knows of those before it in its segment."""
        query, key, value = (project(x, segments=segments) for project in self._projections.values())
        mixed, _ = self._mix(x, query, key, value, *self._pace(x), None, segments)
        return mixed

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """What the projections remember, and the memory, whatever the length."""
        rows = {name: project.init_cache(batch_size=batch_size) for name, project in self._projections.items()}
        return {**rows, "state": jnp.zeros((batch_size, *self._state), jnp.float32)}

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """The next ``[B, T, D]``."""
        old = cast("dict[str, jax.Array]", cache)
        made = {name: p.extend(x, old[name], positions=positions) for name, p in self._projections.items()}
        query, key, value = (y for y, _ in made.values())
        rows = {name: after for name, (_, after) in made.items()}
        # Padding neither fades the memory nor corrects it.
        real_BT1 = (positions >= 0)[..., None]
        log_decay, beta = (jnp.where(real_BT1, pace, 0.0) for pace in self._pace(x))
        mixed, state = self._mix(x, query, key, value, log_decay, beta, old["state"], None)
        return mixed, {**rows, "state": state}

    def _pace(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        step_BTN = jax.nn.softplus(self.step(x).astype(jnp.float32) + _row(self.step_bias.value))
        return -jnp.exp(_row(self.log_decay.value)) * step_BTN, jax.nn.sigmoid(self.beta(x).astype(jnp.float32))

    def _mix(
        self,
        x: jax.Array,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        log_decay_BTN: jax.Array,
        beta_BTN: jax.Array,
        state: jax.Array | None,
        segments: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        _, key_dim, _ = self._state
        query = _of_length(query, key_dim**-0.5)
        key = _of_length(key, 1.0)
        query = self.save_point("query", self.constrain(query, ("batch", "seq", "kv_heads", None)))
        key = self.save_point("key", self.constrain(key, ("batch", "seq", "kv_heads", None)))
        value = self.save_point("value", self.constrain(value, ("batch", "seq", "heads", None)))
        mixed, state = self.delta_rule_fn(query, key, value, log_decay_BTN, beta_BTN, state=state, segments=segments)
        normed = self.norm(self.constrain(mixed, ("batch", "seq", "heads", None)), self.gate(x))
        return self.output_projection(self.save_point("attention", normed)), state

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The projections', and 18 per element of the memory: 3 products, forward and twice backward."""
        num_heads, key_dim, value_dim = self._state
        return super().training_flops_per_token(seq_length) + 18 * num_heads * key_dim * value_dim


def _of_length(x: jax.Array, length: float) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * (length * jax.lax.rsqrt((wide * wide).sum(axis=-1, keepdims=True) + _EPS))).astype(x.dtype)


def _row(by_head: jax.Array) -> jax.Array:
    return by_head.astype(jnp.float32)[None, None, :]
