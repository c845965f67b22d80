"""The linear projection whose weight is stored in eight bits and isn't learnt: under an adapter, or to sample from.

Each output has a scale of its own, so that its largest weight is ±127. The weight is widened as it is multiplied: what is
saved is memory and its traffic, not arithmetic. ``QuantisedLinear`` saves that too, and learns.
"""

# ruff: noqa: ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import math
from typing import TypeVar

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
from ax_config import REQUIRED, Buildable, Config, Target, field, partial_for, replace

from . import initializers
from ._context import name_hash
from ._dtypes import float_dtype
from ._linear import Linear
from ._module import Module, scoped
from ._param_spec import ParamSpec
from .protocols import ArrayTree, Initializer

ConfigT = TypeVar("ConfigT", bound=Config[object])


class Int8Linear(Module):
    """``y = (x · weight) · scale (+ bias)`` with an int8 weight; fits ``Projection``. Nothing of it is learnt.

    It begins with the values that a ``Linear`` begins with, rounded.
    """

    class Config(ax_config.Config["Int8Linear"]):
        """What a ``Linear`` is told, and the type of the scale and the bias."""

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

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        in_dim = (cfg.in_dim,) if isinstance(cfg.in_dim, int) else cfg.in_dim
        out_dim = (cfg.out_dim,) if isinstance(cfg.out_dim, int) else cfg.out_dim
        shape, dtype = (*in_dim, *out_dim), float_dtype(cfg.param_dtype)
        self._num_in, self._dtype = len(in_dim), float_dtype(cfg.compute_dtype)
        dims = tuple(range(-len(shape), -len(out_dim)))
        axes = (*cfg.in_axes, *cfg.out_axes)
        self._wide = ParamSpec(shape, np.dtype(np.float32), axes, cfg.initializer.build(), dims)
        int8 = ParamSpec(shape, np.dtype(np.int8), axes, initializers.zeros, dims, weight_decay=False, trainable=False)
        self.weight = self.param("weight", int8)

        def of_outputs(initializer: Initializer) -> ParamSpec:
            return ParamSpec(out_dim, dtype, cfg.out_axes, initializer, weight_decay=False, trainable=False)

        self.scale = self.param("scale", of_outputs(initializers.ones))
        self.bias = self.param("bias", of_outputs(initializers.zeros)) if cfg.use_bias else None

    def init(self, key: jax.Array, /) -> ArrayTree:
        """See ``Module.init``."""
        wide = self._wide.initialise(jax.random.fold_in(key, name_hash("weight")))
        weight, scale = as_int8(wide, dims=self._wide.fan_in)
        return {**super().init(key), "weight": weight, "scale": scale.astype(self.scale.spec.dtype)}

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, *in_dim] → […, *out_dim]`` in the compute type."""
        contracted = (tuple(range(x.ndim - self._num_in, x.ndim)), tuple(range(self._num_in)))
        y = jax.lax.dot_general(x.astype(self._dtype), self.weight.value.astype(self._dtype), (contracted, ((), ())))
        y = y * self._by_output(self.scale.value, y)
        return y if self.bias is None else y + self._by_output(self.bias.value, y)

    def _by_output(self, param: jax.Array, y: jax.Array) -> jax.Array:
        return param.astype(self._dtype).reshape((1,) * (y.ndim - param.ndim) + param.shape)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """4 per weight: forward, and the gradient for the input; the weight has none."""
        return 4 * math.prod(self.weight.spec.shape)


def as_int8(weight: jax.Array, /, *, dims: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """The int8 weight and the float32 scale of each output, whose product is nearest; ``dims`` are summed over by a product."""
    wide = weight.astype(jnp.float32)
    scale = jnp.max(jnp.abs(wide), axis=dims, keepdims=True) / 127.0
    scale = jnp.where(scale > 0, scale, 1.0)
    return jnp.round(wide / scale).astype(jnp.int8), jnp.squeeze(scale, axis=dims)


def int8_base(tree: ConfigT, /, *, targets: Target = Linear) -> ConfigT:
    """The tree with an ``Int8Linear`` in the place of each ``Linear`` that ``targets`` selects (see ``ax_config.replace``).

    Raises:
        NoMatchError: ``targets`` selects nothing, or something that a Linear isn't.
    """
    told = ("use_bias", "initializer", "param_dtype", "compute_dtype")
    return replace(tree, targets, Int8Linear.Config(), carry=told)
