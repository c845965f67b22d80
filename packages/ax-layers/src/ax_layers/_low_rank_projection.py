"""A projection through few dims, normalised there: the queries of DeepSeek-V2 (arXiv:2405.04434, eq. 12-13)."""

from __future__ import annotations

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field

from ._linear import Linear
from ._module import Module, scoped
from ._rms_norm import RMSNorm
from .protocols import ArrayFn, Projection


class LowRankProjection(Module):
    """``up(norm(down(x)))``; fits ``Projection``."""

    class Config(ax_config.Config["LowRankProjection"]):
        """The interface of a projection, how many dims there are between, and the parts."""

        in_dim: int | tuple[int, ...] = REQUIRED
        out_dim: int | tuple[int, ...] = REQUIRED
        in_axes: tuple[str | None, ...] = REQUIRED
        out_axes: tuple[str | None, ...] = REQUIRED
        rank: int
        down: Buildable[Projection] = field(default_factory=Linear.Config)
        norm: Buildable[ArrayFn] = field(default_factory=RMSNorm.Config)
        up: Buildable[Projection] = field(default_factory=Linear.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.down = self.child(
            "down", cfg.down, in_dim=cfg.in_dim, out_dim=cfg.rank, in_axes=cfg.in_axes, out_axes=(None,)
        )
        self.norm = self.child("norm", cfg.norm, dim=cfg.rank)
        self.up = self.child("up", cfg.up, in_dim=cfg.rank, out_dim=cfg.out_dim, in_axes=(None,), out_axes=cfg.out_axes)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, *in_dim] → […, *out_dim]``."""
        return self.up(self.norm(self.down(x)))
