"""A gate in front of a layer that works on each token alone: as much of it as the token asks for."""

from __future__ import annotations

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field

from ._linear import Linear
from ._module import Module, scoped
from .protocols import ArrayFn, Projection


class Gated(Module):
    """``sigmoid(gate(x)) · layer(x)``, the gate being one number a token; fits ``ArrayFn``.

    Qwen's mixtures of experts have their shared expert behind it.
    """

    class Config(ax_config.Config["Gated"]):
        """The layer and its gate."""

        dim: int = REQUIRED
        layer: Buildable[ArrayFn]
        gate: Buildable[Projection] = field(default_factory=Linear.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.layer = self.child("layer", cfg.layer, dim=cfg.dim)
        self.gate = self.child("gate", cfg.gate, in_dim=cfg.dim, out_dim=1, in_axes=("embed",), out_axes=(None,))

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[…, D] → […, D]``."""
        y = self.layer(x)
        return y * jax.nn.sigmoid(self.gate(x)).astype(y.dtype)
