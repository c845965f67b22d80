"""Root-mean-square normalisation (Zhang and Sennrich 2019, arXiv:1910.07467)."""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED

from . import initializers
from ._dtypes import float_dtype
from ._module import Module, scoped
from ._param_spec import ParamSpec


class RMSNorm(Module):
    """``x / sqrt(mean(x²) + eps) · scale`` over the last dim, computed in float32 and returned in the input's type."""

    class Config(ax_config.Config["RMSNorm"]):
        """The width, and what keeps the root from zero."""

        dim: int = REQUIRED
        eps: float = 1e-5
        unit_offset: bool = False  # the parameter is what the scale has beyond 1, so that it starts at 0 (Gemma)
        param_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._eps, self._unit_offset = cfg.eps, cfg.unit_offset
        first = initializers.zeros if cfg.unit_offset else initializers.ones
        spec = ParamSpec((cfg.dim,), float_dtype(cfg.param_dtype), ("norm",), first, weight_decay=False)
        self.scale = self.param("scale", spec)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, D] → […, D]``."""
        wide = x.astype(jnp.float32)
        inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self._eps)
        scale = self.scale.value.astype(jnp.float32).reshape((1,) * (x.ndim - 1) + (-1,))
        if self._unit_offset:
            scale = 1.0 + scale
        return (wide * inverse * scale).astype(x.dtype)
