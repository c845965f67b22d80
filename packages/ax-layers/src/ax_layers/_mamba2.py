"""Mamba-2: a selective state space in the place of attention (Dao and Gu 2024, arXiv:2405.21060, §7).

Each head has a state that decays and takes in at a pace, the step, which the input sets row by row. What is read and
written, query and key (the paper's C and B), is shared by groups of heads, as attention's keys are. Before that a short
convolution mixes neighbouring rows; after it a gate and a norm. The paper's one wide projection and one convolution are here
one for each of the things that they make, which is the same, and lets heads be split over devices.

Shape suffixes: B batch, T length, G groups, N heads, H head dim, S state dim, D model dim.
"""

# ruff: noqa: ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

from typing import cast

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, field, partial_for

from . import initializers
from ._convolved_projection import ConvolvedProjection
from ._dtypes import float_dtype
from ._gated_norm import GatedRMSNorm
from ._linear import Linear
from ._module import Module, scoped
from ._param_spec import ParamSpec
from ._ssd import ssd
from .protocols import ArrayTree, GatedArrayFn, Initializer, Projection, SequenceProjection, StateSpaceFn


class Mamba2(Module):
    """The Mamba-2 mixer; fits ``SequenceLayer``. Positions are told by order alone."""

    class Config(ax_config.Config["Mamba2"]):
        """Heads and the state's size, and the parts."""

        dim: int = REQUIRED
        num_heads: int
        head_dim: int
        state_dim: int
        num_groups: int = 1  # of heads that share query and key
        min_step: float = 0.0  # steps are cut to between these two
        max_step: float | None = None
        query: Buildable[SequenceProjection] = field(default_factory=ConvolvedProjection.Config)
        key: Buildable[SequenceProjection] = field(default_factory=ConvolvedProjection.Config)
        value: Buildable[SequenceProjection] = field(default_factory=ConvolvedProjection.Config)
        gate: Buildable[Projection] = field(default_factory=Linear.Config)
        step: Buildable[Projection] = field(default_factory=Linear.Config)
        output: Buildable[Projection] = field(default_factory=Linear.Config)
        state_space_fn: Buildable[StateSpaceFn] = field(default_factory=lambda: partial_for(ssd))
        norm: Buildable[GatedArrayFn] = field(default_factory=GatedRMSNorm.Config)
        decay_initializer: Buildable[Initializer] = field(default_factory=lambda: partial_for(initializers.log_uniform))
        step_initializer: Buildable[Initializer] = field(
            default_factory=lambda: partial_for(initializers.inverse_softplus_of_log_uniform)
        )
        param_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.num_heads % cfg.num_groups:
            raise ValueError(f"num_heads is a multiple of num_groups, got {cfg.num_heads} and {cfg.num_groups}")
        self._min_step, self._max_step = cfg.min_step, cfg.max_step
        self._state = (cfg.num_heads, cfg.state_dim, cfg.head_dim)
        heads, head_axes = (cfg.num_heads, cfg.head_dim), ("heads", None)
        groups, group_axes = (cfg.num_groups, cfg.state_dim), ("kv_heads", None)
        inward = {"in_dim": cfg.dim, "in_axes": ("embed",)}
        self._projections = {
            "query": self.child("query", cfg.query, **inward, out_dim=groups, out_axes=group_axes),
            "key": self.child("key", cfg.key, **inward, out_dim=groups, out_axes=group_axes),
            "value": self.child("value", cfg.value, **inward, out_dim=heads, out_axes=head_axes),
        }
        self.gate = self.child("gate", cfg.gate, **inward, out_dim=heads, out_axes=head_axes)
        self.step = self.child("step", cfg.step, **inward, out_dim=cfg.num_heads, out_axes=("heads",))
        self.state_space_fn = self.child("state_space_fn", cfg.state_space_fn)
        self.norm = self.child("norm", cfg.norm, dim=heads, axes=head_axes)
        self.output_projection = self.child(
            "output", cfg.output, in_dim=heads, in_axes=head_axes, out_dim=cfg.dim, out_axes=("embed",)
        )

        def by_head(initializer: Initializer) -> ParamSpec:
            return ParamSpec((cfg.num_heads,), dtype, ("heads",), initializer, weight_decay=False)

        dtype = float_dtype(cfg.param_dtype)
        self.log_decay = self.param("log_decay", by_head(cfg.decay_initializer.build()))
        self.step_bias = self.param("step_bias", by_head(cfg.step_initializer.build()))
        self.skip = self.param("skip", by_head(initializers.ones))

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T, D] → [B, T, D]``; each position knows of those before it in its segment."""
        query, key, value = (project(x, segments=segments) for project in self._projections.values())
        mixed, _ = self._mix(x, query, key, value, self._steps(x), None, segments)
        return mixed

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """What the projections remember, and the state, whatever the length."""
        rows = {name: project.init_cache(batch_size=batch_size) for name, project in self._projections.items()}
        return {**rows, "state": jnp.zeros((batch_size, *self._state), jnp.float32)}

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """The next ``[B, T, D]``."""
        old = cast("dict[str, jax.Array]", cache)
        made = {name: p.extend(x, old[name], positions=positions) for name, p in self._projections.items()}
        query, key, value = (y for y, _ in made.values())
        rows = {name: after for name, (_, after) in made.items()}
        # A step of no length neither decays the state nor adds to it.
        step = jnp.where((positions >= 0)[..., None], self._steps(x), 0.0)
        mixed, state = self._mix(x, query, key, value, step, old["state"], None)
        return mixed, {**rows, "state": state}

    def _steps(self, x: jax.Array) -> jax.Array:
        step_BTN = self.step(x).astype(jnp.float32) + _row(self.step_bias.value)
        return jnp.clip(jax.nn.softplus(step_BTN), self._min_step, self._max_step)

    def _mix(
        self,
        x: jax.Array,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        step_BTN: jax.Array,
        state: jax.Array | None,
        segments: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        query = self.save_point("query", self.constrain(query, ("batch", "seq", "kv_heads", None)))
        key = self.save_point("key", self.constrain(key, ("batch", "seq", "kv_heads", None)))
        value = self.save_point("value", self.constrain(value, ("batch", "seq", "heads", None)))
        taken_BTNH = (value.astype(jnp.float32) * step_BTN[..., None]).astype(value.dtype)
        log_decay_BTN = -jnp.exp(_row(self.log_decay.value)) * step_BTN
        mixed, state = self.state_space_fn(query, key, taken_BTNH, log_decay_BTN, state=state, segments=segments)
        mixed = mixed + value * _row(self.skip.value)[..., None].astype(value.dtype)
        normed = self.norm(self.constrain(mixed, ("batch", "seq", "heads", None)), self.gate(x))
        return self.output_projection(self.save_point("attention", normed)), state

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The projections', and 12 per element of the state: 2 products, forward and twice backward."""
        num_heads, state_dim, head_dim = self._state
        return super().training_flops_per_token(seq_length) + 12 * num_heads * state_dim * head_dim


def _row(by_head: jax.Array) -> jax.Array:
    return by_head.astype(jnp.float32)[None, None, :]
