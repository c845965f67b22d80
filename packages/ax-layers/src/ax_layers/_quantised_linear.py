"""The linear projection that multiplies in eight bits and learns in more.

Inputs and weight are divided by a scale, rounded to int8 or to an eight-bit float, multiplied with sums in 32 bits, and scaled
back; gradients pass the rounding as if it weren't there (straight through; Bengio et al. 2013, arXiv:1308.3432). Backward,
the two products are in eight bits too if ``gradient_dtype`` says so, as in FP8 training (Micikevicius et al. 2022,
arXiv:2209.05433); the scale of an operand over a dim that is summed over there is taken into the gradient before that is
rounded. Only the rounded operands are kept for the backward pass.

How large a number each type has to hold is a child's business, the range: of a whole tensor or of each row and output
(``tensor_range``, ``channel_range``), now; or the largest of the last steps (``DelayedRange``), which is known before the
tensor is and costs no pass over it.
"""

# ruff: noqa: ARG001, ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import functools
import math
from typing import NamedTuple, TypeVar

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
from ax_config import REQUIRED, Buildable, Config, Target, field, partial_for, replace

from . import initializers
from ._dtypes import float_dtype
from ._linear import Linear
from ._module import Module, scoped
from ._param_spec import ParamSpec
from .protocols import Initializer, RangeFn

ConfigT = TypeVar("ConfigT", bound=Config[object])

_LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0, "float8_e5m2": 57_344.0}


def tensor_range(x: jax.Array, /, *, dims: tuple[int, ...]) -> jax.Array:
    """The largest magnitude in the whole tensor; fits ``RangeFn``."""
    return jnp.max(jnp.abs(x), keepdims=True).astype(jnp.float32)


def channel_range(x: jax.Array, /, *, dims: tuple[int, ...]) -> jax.Array:
    """The largest magnitude of each row of an input and of each output of a weight; fits ``RangeFn``."""
    return jnp.max(jnp.abs(x), axis=dims, keepdims=True).astype(jnp.float32)


class DelayedRange(Module):
    """The largest magnitude that the last calls saw, one number a tensor; fits ``RangeFn``. What exceeds it is cut to it.

    Its history is a state, which each step of training assigns. Until it holds something, the range is that of the tensor.
    """

    class Config(ax_config.Config["DelayedRange"]):
        """How far back it remembers."""

        history_length: int = 16

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        spec = ParamSpec(
            (cfg.history_length,),
            np.dtype(np.float32),
            (None,),
            initializers.zeros,
            weight_decay=False,
            trainable=False,
        )
        self.history = self.param("history", spec)

    @scoped
    def __call__(self, x: jax.Array, /, *, dims: tuple[int, ...]) -> jax.Array:
        """One number, in as many dims as ``x`` has."""
        history, seen = self.history.value, tensor_range(x, dims=dims)
        self.update("history", jnp.concatenate([history[1:], seen.reshape(1)]))
        largest = history.max().reshape(seen.shape)
        return jnp.where(largest > 0, largest, seen)


class QuantisedLinear(Module):
    """``Linear``, multiplied in eight bits; fits ``Projection`` and has the parameters of a ``Linear``."""

    class Config(ax_config.Config["QuantisedLinear"]):
        """What a ``Linear`` is told, and the types to multiply in."""

        in_dim: int | tuple[int, ...] = REQUIRED
        out_dim: int | tuple[int, ...] = REQUIRED
        in_axes: tuple[str | None, ...] = REQUIRED
        out_axes: tuple[str | None, ...] = REQUIRED
        dtype: str = "int8"  # or "float8_e4m3fn"
        gradient_dtype: str | None = None  # of the backward products; None: the compute type
        input_range: Buildable[RangeFn] = field(default_factory=lambda: partial_for(channel_range))
        weight_range: Buildable[RangeFn] = field(default_factory=lambda: partial_for(channel_range))
        use_bias: bool = False
        initializer: Buildable[Initializer] = field(
            default_factory=lambda: partial_for(initializers.fan_in_truncated_normal)
        )
        param_dtype: str = "float32"
        compute_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        for name in (cfg.dtype, *([] if cfg.gradient_dtype is None else [cfg.gradient_dtype])):
            if name not in _LARGEST:
                raise ValueError(f"{name!r} is no type to multiply in; it is one of {', '.join(_LARGEST)}")
        if cfg.gradient_dtype is not None and (cfg.gradient_dtype == "int8") != (cfg.dtype == "int8"):
            raise ValueError(f"there are no products of {cfg.gradient_dtype} gradients with {cfg.dtype}")
        in_dim = (cfg.in_dim,) if isinstance(cfg.in_dim, int) else cfg.in_dim
        out_dim = (cfg.out_dim,) if isinstance(cfg.out_dim, int) else cfg.out_dim
        self._shape, self._num_in = (*in_dim, *out_dim), len(in_dim)
        self._dtype = float_dtype(cfg.compute_dtype)
        self._types = _Types(cfg.dtype, cfg.gradient_dtype, self._dtype)
        dims = tuple(range(-len(self._shape), -len(out_dim)))
        dtype, axes = float_dtype(cfg.param_dtype), (*cfg.in_axes, *cfg.out_axes)
        self.weight = self.param("weight", ParamSpec(self._shape, dtype, axes, cfg.initializer.build(), dims))
        self.bias = None
        if cfg.use_bias:
            bias = ParamSpec(out_dim, dtype, cfg.out_axes, initializers.zeros, weight_decay=False)
            self.bias = self.param("bias", bias)
        self.input_range = self.child("input_range", cfg.input_range)
        self.weight_range = self.child("weight_range", cfg.weight_range)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, *in_dim] → […, *out_dim]`` in the compute type."""
        rows, outputs = x.shape[: x.ndim - self._num_in], self._shape[self._num_in :]
        summed = math.prod(self._shape[: self._num_in])
        x_MI = x.astype(self._dtype).reshape(-1, summed)
        weight_IO = self.weight.value.astype(self._dtype).reshape(summed, -1)
        ranges = (
            self.input_range(jax.lax.stop_gradient(x_MI), dims=(1,)),
            self.weight_range(jax.lax.stop_gradient(weight_IO), dims=(0,)),
        )
        scales = [_scale(largest, self._types.forward) for largest in ranges]
        y = _matmul(self._types, x_MI, weight_IO, *scales).reshape(*rows, *outputs)
        if self.bias is not None:
            y = y + self.bias.value.astype(self._dtype).reshape((1,) * len(rows) + outputs)
        return y

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """6 per weight, in whatever type."""
        return 6 * math.prod(self._shape)


def quantised(tree: ConfigT, new: QuantisedLinear.Config, /, *, targets: Target = Linear) -> ConfigT:
    """The tree with ``new``, of the same sizes and precision, for each ``Linear`` that ``targets`` selects.

    Raises:
        NoMatchError: ``targets`` selects nothing (see ``ax_config.replace``), or something that a Linear isn't.
    """
    return replace(tree, targets, new, carry=("use_bias", "initializer", "param_dtype", "compute_dtype"))


# The product. Shape suffixes: M rows, I inputs, O outputs.


class _Types(NamedTuple):
    forward: str
    backward: str | None
    result: np.dtype


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _matmul(
    types: _Types, x_MI: jax.Array, weight_IO: jax.Array, x_scale: jax.Array, weight_scale: jax.Array
) -> jax.Array:
    return _forward(types, x_MI, weight_IO, x_scale, weight_scale)[0]


_Residuals = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def _forward(
    types: _Types, x_MI: jax.Array, weight_IO: jax.Array, x_scale: jax.Array, weight_scale: jax.Array
) -> tuple[jax.Array, _Residuals]:
    x_MI, weight_IO = _rounded(x_MI, x_scale, types.forward), _rounded(weight_IO, weight_scale, types.forward)
    y_MO = _wide_product(x_MI, weight_IO) * x_scale * weight_scale
    return y_MO.astype(types.result), (x_MI, weight_IO, x_scale, weight_scale)


def _backward(
    types: _Types, residuals: _Residuals, gradient_MO: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    x_MI, weight_IO, x_scale, weight_scale = residuals
    gradient_MO = gradient_MO.astype(jnp.float32)
    to_x = _product_of_gradient(types, gradient_MO * weight_scale, weight_IO.T)
    to_weight = _product_of_gradient(types, (gradient_MO * x_scale).T, x_MI).T
    return to_x, to_weight, jnp.zeros_like(x_scale), jnp.zeros_like(weight_scale)


_matmul.defvjp(_forward, _backward)


def _product_of_gradient(types: _Types, gradient: jax.Array, other: jax.Array) -> jax.Array:
    if types.backward is None:
        return jnp.matmul(gradient.astype(types.result), other.astype(types.result))
    scale = _scale(channel_range(gradient, dims=(1,)), types.backward)
    return (_wide_product(_rounded(gradient, scale, types.backward), other) * scale).astype(types.result)


def _scale(largest: jax.Array, dtype: str) -> jax.Array:
    return jnp.where(largest > 0, largest / _LARGEST[dtype], 1.0)


def _rounded(x: jax.Array, scale: jax.Array, dtype: str) -> jax.Array:
    most = _LARGEST[dtype]
    scaled = jnp.clip(x.astype(jnp.float32) / scale, -most, most)
    return (jnp.round(scaled) if dtype == "int8" else scaled).astype(dtype)


def _wide_product(left: jax.Array, right: jax.Array) -> jax.Array:
    wide = jnp.int32 if left.dtype == jnp.int8 else jnp.float32
    product = jax.lax.dot_general(left, right, (((1,), (0,)), ((), ())), preferred_element_type=wide)
    return product.astype(jnp.float32)
