"""Layer normalisation (Ba et al. 2016, arXiv:1607.06450)."""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED

from . import initializers
from ._dtypes import float_dtype
from ._module import Module, Param, scoped
from ._param_spec import ParamSpec


class LayerNorm(Module):
    """``(x - mean) / sqrt(variance + eps) · scale (+ bias)`` over the last dim, in float32, returned in the input's type."""

    class Config(ax_config.Config["LayerNorm"]):
        """The width, and what is learnt."""

        dim: int = REQUIRED
        eps: float = 1e-5
        use_bias: bool = True
        param_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._eps = cfg.eps
        dtype = float_dtype(cfg.param_dtype)
        self.scale = self.param("scale", ParamSpec((cfg.dim,), dtype, ("norm",), initializers.ones, weight_decay=False))
        self.bias: Param | None = None
        if cfg.use_bias:
            spec = ParamSpec((cfg.dim,), dtype, ("norm",), initializers.zeros, weight_decay=False)
            self.bias = self.param("bias", spec)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, D] → […, D]``."""

        def along_x(param: Param) -> jax.Array:
            return param.value.astype(jnp.float32).reshape((1,) * (x.ndim - 1) + (-1,))

        wide = x.astype(jnp.float32)
        centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
        inverse = jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + self._eps)
        y = centred * inverse * along_x(self.scale)
        if self.bias is not None:
            y = y + along_x(self.bias)
        return y.astype(x.dtype)
