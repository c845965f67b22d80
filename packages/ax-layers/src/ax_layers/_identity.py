"""The layer that does nothing, where a place may stay empty."""

# ruff: noqa: ARG002  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import ax_config
import jax
from ax_config import REQUIRED

from ._module import Module, scoped


class Identity(Module):
    """``x`` itself; fits ``ArrayFn`` and stands where a norm may."""

    class Config(ax_config.Config["Identity"]):
        """The width that it is told, as any norm is."""

        dim: int = REQUIRED

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``x``."""
        return x
