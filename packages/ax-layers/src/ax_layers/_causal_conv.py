"""The short causal convolution over the sequence, each channel by itself, as Mamba and its kin mix neighbouring rows."""

from __future__ import annotations

import math

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, field, partial_for

from . import initializers
from ._chunked_recurrence import segment_starts
from ._dtypes import float_dtype
from ._module import Module, scoped
from ._param_spec import ParamSpec
from .protocols import Initializer


class CausalConv(Module):
    """``y_t = Σ_i weight[i] · x[t - width + 1 + i] (+ bias)``; rows before a segment's first are zero.

    The weight is ``[width, *dim]``. For decoding it remembers the last ``width - 1`` rows.
    """

    class Config(ax_config.Config["CausalConv"]):
        """How far back it sees, and the channels with their logical names."""

        dim: int | tuple[int, ...] = REQUIRED
        axes: tuple[str | None, ...] = REQUIRED
        width: int = 4
        use_bias: bool = True
        initializer: Buildable[Initializer] = field(
            default_factory=lambda: partial_for(initializers.fan_in_truncated_normal)
        )
        param_dtype: str = "float32"
        compute_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.width < 1:
            raise ValueError(f"a convolution has a width of at least 1, got {cfg.width}")
        self._width = cfg.width
        self._dim = (cfg.dim,) if isinstance(cfg.dim, int) else cfg.dim
        self._dtype = float_dtype(cfg.compute_dtype)
        dtype, shape = float_dtype(cfg.param_dtype), (cfg.width, *self._dim)
        weight = ParamSpec(shape, dtype, (None, *cfg.axes), cfg.initializer.build(), fan_in=(-len(shape),))
        self.weight = self.param("weight", weight)
        self.bias = None
        if cfg.use_bias:
            bias = ParamSpec(self._dim, dtype, cfg.axes, initializers.zeros, weight_decay=False)
            self.bias = self.param("bias", bias)

    @scoped
    def __call__(self, x: jax.Array, /, *, segments: jax.Array | None = None) -> jax.Array:
        """``[B, T, *dim] → [B, T, *dim]`` in the compute type."""
        return self._convolve(self._before(x.shape[0]), x.astype(self._dtype), segments)

    def init_cache(self, *, batch_size: int) -> jax.Array:
        """The rows before a sequence: zeros ``[B, width - 1, *dim]``."""
        return self._before(batch_size)

    @scoped
    def extend(self, x: jax.Array, cache: jax.Array, /, *, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The next ``[B, T, *dim]``; rows at a negative position are passed over."""
        x, real_BT = x.astype(self._dtype), positions >= 0
        # The real rows first, in their order, so that each finds its neighbours beside it.
        order_BT = jnp.argsort(~real_BT, axis=1, stable=True)
        packed = _take_rows(x, order_BT)
        out = _take_rows(self._convolve(cache, packed, None), jnp.argsort(order_BT, axis=1))
        last_BK = real_BT.sum(axis=1, dtype=jnp.int32)[:, None] + jnp.arange(self._width - 1, dtype=jnp.int32)[None]
        return out, _take_rows(jnp.concatenate([cache, packed], axis=1), last_BK)

    def training_flops_per_token(self, seq_length: int, /) -> float:  # noqa: ARG002  # the sequence's length is no matter
        """6 per weight."""
        return 6 * self._width * math.prod(self._dim)

    def _before(self, batch_size: int) -> jax.Array:
        return jnp.zeros((batch_size, self._width - 1, *self._dim), self._dtype)

    def _convolve(self, before: jax.Array, x: jax.Array, segments: jax.Array | None) -> jax.Array:
        weight = self.weight.value.astype(self._dtype)
        rows, length, broadcast = jnp.concatenate([before, x], axis=1), x.shape[1], (1, 1, *self._dim)
        out = x * weight[-1].reshape(broadcast)
        # How many rows the segment has had: those further back aren't seen.
        past_BT = None if segments is None else _rows_since_start(segments)
        for back in range(1, self._width):
            row = jax.lax.slice_in_dim(rows, self._width - 1 - back, self._width - 1 - back + length, axis=1)
            if past_BT is not None:
                row = jnp.where((past_BT >= back).reshape(*past_BT.shape, *[1] * len(self._dim)), row, 0)
            out = out + row * weight[-1 - back].reshape(broadcast)
        if self.bias is not None:
            out = out + self.bias.value.astype(self._dtype).reshape(broadcast)
        return out


def _take_rows(x: jax.Array, rows_BT: jax.Array) -> jax.Array:
    return jnp.take_along_axis(x, rows_BT.reshape(*rows_BT.shape, *[1] * (x.ndim - 2)), axis=1)


def _rows_since_start(segments_BT: jax.Array) -> jax.Array:
    rows_T = jnp.arange(segments_BT.shape[1], dtype=jnp.int32)[None]
    return rows_T - jax.lax.cummax(jnp.where(segment_starts(segments_BT), rows_T, 0), axis=1)
