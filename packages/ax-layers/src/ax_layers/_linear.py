"""The linear projection: a matmul with a weight, from one or several dims to one or several dims."""

# ruff: noqa: ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import math

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field, partial_for

from . import initializers
from ._dtypes import float_dtype
from ._module import Module, scoped
from ._param_spec import ParamSpec
from .protocols import Initializer


class Linear(Module):
    """``y = x · weight (+ bias)``, summed over the input dims.

    The weight has shape ``[*in_dim, *out_dim]``: a projection to heads has ``out_dim=(num_heads, head_dim)``, and no
    reshape stands between it and the attention.
    """

    class Config(ax_config.Config["Linear"]):
        """Sizes, and the logical names of the weight's dims."""

        in_dim: int | tuple[int, ...] = REQUIRED
        out_dim: int | tuple[int, ...] = REQUIRED
        in_axes: tuple[str | None, ...] = REQUIRED
        out_axes: tuple[str | None, ...] = REQUIRED
        use_bias: bool = False
        initializer: Buildable[Initializer] = field(
            default_factory=lambda: partial_for(initializers.fan_in_truncated_normal)
        )
        param_dtype: str = "float32"
        compute_dtype: str = "float32"
        accumulation_dtype: str | None = None  # of the sums; None: the compute type
        output_dtype: str | None = None  # None: the compute type

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        in_dim = (cfg.in_dim,) if isinstance(cfg.in_dim, int) else cfg.in_dim
        out_dim = (cfg.out_dim,) if isinstance(cfg.out_dim, int) else cfg.out_dim
        dtype = float_dtype(cfg.param_dtype)
        self._dtype = float_dtype(cfg.compute_dtype)
        self._accumulation_dtype = float_dtype(cfg.accumulation_dtype or cfg.compute_dtype)
        self._output_dtype = float_dtype(cfg.output_dtype or cfg.compute_dtype)
        self._num_in = len(in_dim)
        self.weight = self.param(
            "weight",
            ParamSpec(
                (*in_dim, *out_dim),
                dtype,
                (*cfg.in_axes, *cfg.out_axes),
                cfg.initializer.build(),
                fan_in=tuple(range(-len(in_dim) - len(out_dim), -len(out_dim))),
            ),
        )
        self.bias = None
        if cfg.use_bias:
            spec = ParamSpec(out_dim, dtype, cfg.out_axes, initializers.zeros, weight_decay=False)
            self.bias = self.param("bias", spec)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, *in_dim] → […, *out_dim]`` in the output type."""
        contracted = (tuple(range(x.ndim - self._num_in, x.ndim)), tuple(range(self._num_in)))
        y = jax.lax.dot_general(
            x.astype(self._dtype),
            self.weight.value.astype(self._dtype),
            (contracted, ((), ())),
            preferred_element_type=self._accumulation_dtype,
        )
        if self.bias is not None:
            bias = self.bias.value.astype(y.dtype)
            y = y + bias.reshape((1,) * (y.ndim - bias.ndim) + bias.shape)
        return y.astype(self._output_dtype)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """6 per weight."""
        return 6 * math.prod(self.weight.spec.shape)
