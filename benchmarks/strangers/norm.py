"""A normalisation without statistics: dynamic tanh (Zhu et al. 2025, arXiv:2503.10622) and other curves like it.

Each element is squashed by itself, at a steepness that is learnt; nothing is summed over a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
from ax_config import REQUIRED, Buildable, Config, field, partial_for, replace
from ax_layers import Module, Param, ParamSpec, RMSNorm, initializers, scoped
from ax_layers.protocols import ArrayFn

ConfigT = TypeVar("ConfigT", bound=Config[object])


def inverse_root(x: jax.Array, /) -> jax.Array:
    """``x / sqrt(1 + x²)``."""
    return x * jax.lax.rsqrt(1 + x * x)


class DynamicNorm(Module):
    """``gain · squash(steepness · x) (+ bias)``, in float32, returned in the input's type; fits ``ArrayFn``."""

    class Config(ax_config.Config["DynamicNorm"]):
        """The curve, and what is learnt of it."""

        dim: int = REQUIRED
        squash: Buildable[ArrayFn] = field(default_factory=lambda: partial_for(jnp.tanh))
        steepness: float = 0.5
        by_element: bool = False  # a steepness for each
        use_bias: bool = True

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.squash = self.child("squash", cfg.squash)

        def vector(name: str, size: int, value: float) -> Param:
            first = partial_for(initializers.constant, value=value).build()
            axes = ("norm" if size == cfg.dim else None,)
            return self.param(name, ParamSpec((size,), np.dtype(np.float32), axes, first, weight_decay=False))

        self.steepness = vector("steepness", cfg.dim if cfg.by_element else 1, cfg.steepness)
        self.gain = vector("gain", cfg.dim, 1.0)
        self.bias = vector("bias", cfg.dim, 0.0) if cfg.use_bias else None

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, D] → […, D]``."""

        def along_x(param: Param) -> jax.Array:
            return param.value.reshape((1,) * (x.ndim - 1) + (-1,))

        y = self.squash(x.astype(jnp.float32) * along_x(self.steepness)) * along_x(self.gain)
        return (y if self.bias is None else y + along_x(self.bias)).astype(x.dtype)


_Dynamic = DynamicNorm.Config
VARIANTS: Mapping[str, DynamicNorm.Config] = {
    "tanh": _Dynamic(),
    "tanh, steep": _Dynamic(steepness=1.0),
    "tanh, flat": _Dynamic(steepness=0.2),
    "tanh, no bias": _Dynamic(use_bias=False),
    "tanh, by element": _Dynamic(by_element=True),
    "hard tanh": _Dynamic(squash=partial_for(jax.nn.hard_tanh)),
    "soft sign": _Dynamic(squash=partial_for(jax.nn.soft_sign)),
    "erf": _Dynamic(squash=partial_for(jax.lax.erf)),
    "inverse root": _Dynamic(squash=partial_for(inverse_root)),
    "inverse root, by element, no bias": _Dynamic(squash=partial_for(inverse_root), by_element=True, use_bias=False),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """No norm takes means."""
    return replace(tree, RMSNorm, VARIANTS[variant])
