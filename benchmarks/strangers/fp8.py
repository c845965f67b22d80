"""Quantised matmuls in the way of fp8 training (Micikevicius et al. 2022, arXiv:2209.05433).

Inputs and weights are scaled into the range of an 8-bit float and rounded to it right before they are multiplied, and, if
wanted, so are the gradients of what comes out; sums and the weights that are learnt stay wide. Rounding has the derivative
of the identity (straight through). The factors are written as ``narrow · scale`` in the compute type, which is exact, and
which XLA turns into 8-bit matmuls where the hardware has them.
"""

# ruff: noqa: ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Literal, TypeVar

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, Config, field, partial_for, replace
from ax_layers import Linear, Module, ParamSpec, initializers, scoped
from ax_layers.protocols import Initializer

ConfigT = TypeVar("ConfigT", bound=Config[object])

Format = Literal["float8_e4m3fn", "float8_e5m2"]
Scaling = Literal["tensor", "vector", "block of 32"]
_LARGEST: Mapping[Format, float] = {"float8_e4m3fn": 448.0, "float8_e5m2": 57_344.0}


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def rounded(x: jax.Array, format: Format, scaling: Scaling) -> jax.Array:
    """``x [C, …]`` as the format holds it, with one scale for all of it, for each vector ``x[:, …]``, or for each block of those.

    Blocks have scales that are powers of two, as in OCP's microscaling formats.
    """
    blocked = scaling == "block of 32" and x.shape[0] % 32 == 0
    wide = x.astype(jnp.float32).reshape(-1, 32, *x.shape[1:]) if blocked else x.astype(jnp.float32)
    largest = jnp.abs(wide).max(axis=None if scaling == "tensor" else 1 if blocked else 0, keepdims=True)
    scale = jnp.maximum(largest, 1e-30) / _LARGEST[format]
    if scaling == "block of 32":
        scale = jnp.exp2(jnp.ceil(jnp.log2(scale)))
    held: jax.Array = (wide / scale).astype(format).astype(jnp.float32) * scale
    return held.reshape(x.shape).astype(x.dtype)


@rounded.defjvp
def _straight_through(
    format: Format, scaling: Scaling, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return rounded(primals[0], format, scaling), tangents[0]


@jax.custom_vjp
def with_rounded_gradient(x: jax.Array) -> jax.Array:
    """``x``; its gradient goes back as an e5m2 holds it, with one scale."""
    return x


with_rounded_gradient.defvjp(lambda x: (x, None), lambda _, g: (rounded(g, "float8_e5m2", "tensor"),))


class QuantisedLinear(Module):
    """``y = x · weight``, of rounded factors; fits ``Projection``. Its weight is that of a ``Linear``, under the same name."""

    class Config(ax_config.Config["QuantisedLinear"]):
        """Sizes, and how to round."""

        in_dim: int | tuple[int, ...] = REQUIRED
        out_dim: int | tuple[int, ...] = REQUIRED
        in_axes: tuple[str | None, ...] = REQUIRED
        out_axes: tuple[str | None, ...] = REQUIRED
        initializer: Buildable[Initializer] = field(
            default_factory=lambda: partial_for(initializers.fan_in_truncated_normal)
        )
        param_dtype: str = "float32"
        compute_dtype: str = "float32"
        format: Format = "float8_e4m3fn"
        scaling: Scaling = "tensor"
        round_gradient: bool = False

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._cfg = cfg
        in_dim = (cfg.in_dim,) if isinstance(cfg.in_dim, int) else cfg.in_dim
        out_dim = (cfg.out_dim,) if isinstance(cfg.out_dim, int) else cfg.out_dim
        self._num_in, self._out_dim = math.prod(in_dim), out_dim
        self._first_in = -len(in_dim)
        spec = ParamSpec(
            (*in_dim, *out_dim),
            jnp.dtype(cfg.param_dtype),
            (*cfg.in_axes, *cfg.out_axes),
            cfg.initializer.build(),
            fan_in=tuple(range(-len(in_dim) - len(out_dim), -len(out_dim))),
        )
        self.weight = self.param("weight", spec)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, *in_dim] → […, *out_dim]``."""
        cfg, leading = self._cfg, x.shape[: self._first_in]
        dtype = jnp.dtype(cfg.compute_dtype)
        inputs_CM = x.reshape(-1, self._num_in).astype(dtype).T
        weight_CO = self.weight.value.reshape(self._num_in, -1).astype(dtype)
        y_MO = rounded(inputs_CM, cfg.format, cfg.scaling).T @ rounded(weight_CO, cfg.format, cfg.scaling)
        if cfg.round_gradient:
            y_MO = with_rounded_gradient(y_MO)
        return y_MO.reshape(*leading, *self._out_dim)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """6 per weight."""
        return 6 * math.prod(self.weight.spec.shape)


_Fp8 = QuantisedLinear.Config
VARIANTS: Mapping[str, QuantisedLinear.Config] = {
    "e4m3": _Fp8(),
    "e4m3 by vector": _Fp8(scaling="vector"),
    "e4m3 by block": _Fp8(scaling="block of 32"),
    "e5m2": _Fp8(format="float8_e5m2"),
    "e5m2 by vector": _Fp8(format="float8_e5m2", scaling="vector"),
    "e5m2 by block": _Fp8(format="float8_e5m2", scaling="block of 32"),
    "e4m3, e5m2 back": _Fp8(round_gradient=True),
    "e4m3 by vector, e5m2 back": _Fp8(scaling="vector", round_gradient=True),
    "e4m3 by block, e5m2 back": _Fp8(scaling="block of 32", round_gradient=True),
    "e4m3 in bfloat16, e5m2 back": _Fp8(compute_dtype="bfloat16", round_gradient=True),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """Every projection multiplies rounded numbers."""
    return replace(tree, Linear, VARIANTS[variant])
