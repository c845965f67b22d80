"""A projection whose whole output is normalised, all heads as one vector: OLMo 2's queries and keys (arXiv:2501.00656).

Where each head is normalised by itself, ``qk_norm`` of ``Attention`` does it.
"""

from __future__ import annotations

import math

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field

from ._linear import Linear
from ._module import Module, scoped
from ._rms_norm import RMSNorm
from .protocols import ArrayFn, Projection


class NormalisedProjection(Module):
    """``norm(projection(x))`` over all output dims together; fits ``Projection``."""

    class Config(ax_config.Config["NormalisedProjection"]):
        """The interface of a projection, and the two parts."""

        in_dim: int | tuple[int, ...] = REQUIRED
        out_dim: int | tuple[int, ...] = REQUIRED
        in_axes: tuple[str | None, ...] = REQUIRED
        out_axes: tuple[str | None, ...] = REQUIRED
        projection: Buildable[Projection] = field(default_factory=Linear.Config)
        norm: Buildable[ArrayFn] = field(default_factory=RMSNorm.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._out_dim = (cfg.out_dim,) if isinstance(cfg.out_dim, int) else cfg.out_dim
        self.projection = self.child(
            "projection",
            cfg.projection,
            in_dim=cfg.in_dim,
            out_dim=cfg.out_dim,
            in_axes=cfg.in_axes,
            out_axes=cfg.out_axes,
        )
        self.norm = self.child("norm", cfg.norm, dim=math.prod(self._out_dim))

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, *in_dim] → […, *out_dim]``."""
        y = self.projection(x)
        above = y.shape[: y.ndim - len(self._out_dim)]
        return self.norm(y.reshape(*above, -1)).reshape(y.shape)
