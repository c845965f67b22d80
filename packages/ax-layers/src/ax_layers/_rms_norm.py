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
        param_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._eps = cfg.eps
        dtype = float_dtype(cfg.param_dtype)
        self.scale = self.param("scale", ParamSpec((cfg.dim,), dtype, ("norm",), initializers.ones, weight_decay=False))

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, D] → […, D]``."""
        wide = x.astype(jnp.float32)
        inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self._eps)
        scale = self.scale.value.astype(jnp.float32).reshape((1,) * (x.ndim - 1) + (-1,))
        return (wide * inverse * scale).astype(x.dtype)
