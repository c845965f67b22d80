"""RMS normalisation with a gate, as state-space and linear-attention layers end."""

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
from .protocols import ArrayFn


class GatedRMSNorm(Module):
    """``norm(x · activation(gate))``, or ``norm(x) · activation(gate)``; in float32, returned in ``x``'s type.

    The first is Mamba-2's (Dao and Gu 2024, arXiv:2405.21060), the second that of gated DeltaNet (arXiv:2412.06464).
    """

    class Config(ax_config.Config["GatedRMSNorm"]):
        """The dims that are normalised together, and where the gate comes in."""

        dim: int | tuple[int, ...] = REQUIRED
        axes: tuple[str | None, ...] = REQUIRED
        num_groups: int = 1  # the first of the dims is cut into so many parts, each normalised by itself
        gate_first: bool = True
        activation: Buildable[ArrayFn] = field(default_factory=lambda: partial_for(jax.nn.silu))
        eps: float = 1e-5
        param_dtype: str = "float32"

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        dim = (cfg.dim,) if isinstance(cfg.dim, int) else cfg.dim
        if dim[0] % cfg.num_groups:
            raise ValueError(f"num_groups divides the first of the dims {dim}, got {cfg.num_groups}")
        self._dim, self._group = dim, (cfg.num_groups, math.prod(dim) // cfg.num_groups)
        self._gate_first, self._eps = cfg.gate_first, cfg.eps
        self.activation = self.child("activation", cfg.activation)
        dtype = float_dtype(cfg.param_dtype)
        self.scale = self.param("scale", ParamSpec(dim, dtype, cfg.axes, initializers.ones, weight_decay=False))

    @scoped
    def __call__(self, x: jax.Array, gate: jax.Array, /) -> jax.Array:
        """``[…, *dim] × […, *dim] → […, *dim]``."""
        wide, opening = x.astype(jnp.float32), self.activation(gate.astype(jnp.float32))
        lead = x.shape[: x.ndim - len(self._dim)]
        if self._gate_first:
            wide = wide * opening
        groups = wide.reshape(*lead, *self._group)
        inverse = jax.lax.rsqrt(jnp.mean(groups * groups, axis=-1, keepdims=True) + self._eps)
        scale = self.scale.value.astype(jnp.float32).reshape((1,) * len(lead) + self._dim)
        normed = (groups * inverse).reshape(x.shape) * scale
        return (normed if self._gate_first else normed * opening).astype(x.dtype)
