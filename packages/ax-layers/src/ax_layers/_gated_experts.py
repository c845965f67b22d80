"""Experts that are gated feed-forwards (SwiGLU), all weights of a kind in one parameter."""

# ruff: noqa: ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

from collections.abc import Sequence

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field, partial_for

from . import initializers
from ._dropless import Dropless
from ._dtypes import float_dtype
from ._module import Module, scoped
from ._param_spec import ParamSpec
from .protocols import ArrayFn, Axes, Dispatch, Initializer, Routing, RowsMatmul


class GatedExperts(Module):
    """``down(activation(gate(x)) · up(x))`` with weights of each expert's own; fits ``Experts``."""

    class Config(ax_config.Config["GatedExperts"]):
        """One expert's inner width, how tokens get there, and precision."""

        dim: int = REQUIRED
        num_experts: int = REQUIRED
        hidden_dim: int
        activation: Buildable[ArrayFn] = field(default_factory=lambda: partial_for(jax.nn.silu))
        dispatch: Buildable[Dispatch] = field(default_factory=Dropless.Config)
        initializer: Buildable[Initializer] = field(
            default_factory=lambda: partial_for(initializers.fan_in_truncated_normal)
        )
        param_dtype: str = "float32"
        compute_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._dtype = float_dtype(cfg.compute_dtype)
        self._flops = 6 * 3 * cfg.dim * cfg.hidden_dim
        dtype, initializer = float_dtype(cfg.param_dtype), cfg.initializer.build()

        def weight(in_dim: int, out_dim: int, *axes: str) -> ParamSpec:
            return ParamSpec((cfg.num_experts, in_dim, out_dim), dtype, ("expert", *axes), initializer, fan_in=(-2,))

        inward = weight(cfg.dim, cfg.hidden_dim, "embed", "mlp")
        self._weights = (
            self.param("gate", inward),
            self.param("up", inward),
            self.param("down", weight(cfg.hidden_dim, cfg.dim, "mlp", "embed")),
        )
        self._axes: tuple[Axes, ...] = (("expert", None, "mlp"), ("expert", None, "mlp"), ("expert", "mlp", None))
        self.activation = self.child("activation", cfg.activation)
        self.dispatch = self.child("dispatch", cfg.dispatch)

    @scoped
    def __call__(self, x: jax.Array, routing: Routing, /) -> tuple[jax.Array, jax.Array]:
        """See ``Experts``; in the compute type."""
        weights = [weight.value.astype(self._dtype) for weight in self._weights]
        return self.dispatch(x.astype(self._dtype), routing, weights, self._axes, self._expert)

    def _expert(self, rows: jax.Array, weights: Sequence[jax.Array], matmul: RowsMatmul, /) -> jax.Array:
        gate, up, down = weights
        gated = self.save_point("ffn_gate", matmul(rows, gate))
        return matmul(self.activation(gated) * self.save_point("ffn_up", matmul(rows, up)), down)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """6 per weight of one expert."""
        return self._flops
