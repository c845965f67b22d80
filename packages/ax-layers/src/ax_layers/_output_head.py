"""The output head of a language model whose weight isn't that of its embedding."""

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
from ._wide_einsum import wide_einsum
from .protocols import Initializer


class Head(Module):
    """Vectors to logits by a weight ``[V, D]`` of its own; fits ``OutputHead``."""

    class Config(ax_config.Config["Head"]):
        """Sizes and precision."""

        vocab_size: int = REQUIRED
        dim: int = REQUIRED
        initializer: Buildable[Initializer] = field(
            default_factory=lambda: partial_for(initializers.fan_in_truncated_normal)
        )
        param_dtype: str = "float32"
        compute_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._dtype = float_dtype(cfg.compute_dtype)
        spec = ParamSpec(
            (cfg.vocab_size, cfg.dim),
            float_dtype(cfg.param_dtype),
            ("vocab", "embed"),
            cfg.initializer.build(),
            fan_in=(-1,),
        )
        self.weight = self.param("weight", spec)

    @scoped
    def attend(self, x: jax.Array, /) -> jax.Array:
        """``[…, D] → […, V]`` float32."""
        return logits_of(x, self.output_weight())

    @scoped
    def output_weight(self) -> jax.Array:
        """The ``[V, D]`` matrix in the compute type."""
        return self.weight.value.astype(self._dtype)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """6 per weight."""
        return 6 * math.prod(self.weight.spec.shape)


def logits_of(x: jax.Array, weight: jax.Array) -> jax.Array:
    """``x · weightᵀ`` in the weight's type, summed up in float32."""
    return wide_einsum("...d,vd->...v", x.astype(weight.dtype), weight)
