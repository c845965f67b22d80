"""Positions told once, by a vector that is added to each token's; both fit ``PositionEmbedding``."""

from __future__ import annotations

import math

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, field, partial_for

from . import initializers
from ._dtypes import float_dtype
from ._module import Module, scoped
from ._param_spec import ParamSpec
from .protocols import Initializer


class LearnedPositions(Module):
    """A learnt vector for each of the first ``max_length`` positions (Gehring et al. 2017, arXiv:1705.03122)."""

    class Config(ax_config.Config["LearnedPositions"]):
        """How many, and their first values."""

        dim: int = REQUIRED
        max_length: int
        initializer: Buildable[Initializer] = field(default_factory=lambda: partial_for(initializers.normal, std=0.02))
        param_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        shape, dtype = (cfg.max_length, cfg.dim), float_dtype(cfg.param_dtype)
        self.weight = self.param(
            "weight", ParamSpec(shape, dtype, (None, "embed"), cfg.initializer.build(), fan_in=(-1,))
        )

    @scoped
    def __call__(self, x: jax.Array, /, *, positions: jax.Array | None = None) -> jax.Array:
        """``[B, T, D] → [B, T, D]``; a position from ``max_length`` on gives NaN."""
        steps = jnp.arange(x.shape[1])[None] if positions is None else positions
        return x + jnp.take(self.weight.value, steps, axis=0, mode="fill").astype(x.dtype)


class SinusoidalPositions(Module):
    """Sines, then cosines, of ``position · max_period ** (-i / (D/2))`` (Vaswani et al. 2017, arXiv:1706.03762)."""

    class Config(ax_config.Config["SinusoidalPositions"]):
        """The longest period, over 2π."""

        dim: int = REQUIRED
        max_period: float = 10_000.0

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.dim % 2:
            raise ValueError(f"sines and cosines come in pairs, so the dim is even; got {cfg.dim}")
        self._half, self._max_period = cfg.dim // 2, cfg.max_period

    @scoped
    def __call__(self, x: jax.Array, /, *, positions: jax.Array | None = None) -> jax.Array:
        """``[B, T, D] → [B, T, D]``."""
        steps = jnp.arange(x.shape[1])[None] if positions is None else positions
        frequencies = jnp.exp(jnp.arange(self._half, dtype=jnp.float32) * (-math.log(self._max_period) / self._half))
        angles_BTR = steps[:, :, None].astype(jnp.float32) * frequencies[None, None, :]
        return x + jnp.concatenate([jnp.sin(angles_BTR), jnp.cos(angles_BTR)], axis=-1).astype(x.dtype)
