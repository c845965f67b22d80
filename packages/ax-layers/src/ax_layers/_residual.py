"""The block with one layer in it, as stacks of state-space layers are made of."""

from __future__ import annotations

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field

from ._dropout import Dropout
from ._module import Module, scoped
from ._rms_norm import RMSNorm
from .protocols import ArrayFn, ArrayTree, SequenceLayer


class Residual(Module):
    """``x + layer(norm(x))``; fits ``SequenceLayer``."""

    class Config(ax_config.Config["Residual"]):
        """The layer, and what stands around it."""

        dim: int = REQUIRED
        layer: Buildable[SequenceLayer]
        norm: Buildable[ArrayFn] = field(default_factory=RMSNorm.Config)
        dropout: Buildable[ArrayFn] = field(default_factory=Dropout.Config)  # on what the layer adds

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.norm = self.child("norm", cfg.norm, dim=cfg.dim)
        self.layer = self.child("layer", cfg.layer, dim=cfg.dim)
        self.dropout = self.child("dropout", cfg.dropout)

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T, D] → [B, T, D]``."""
        x = self._place("layer_input", x)
        added = self._place("layer_output", self.layer(self.norm(x), positions=positions, segments=segments))
        return x + self.dropout(added)

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """The layer's."""
        return self.layer.init_cache(batch_size=batch_size, max_length=max_length)

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """The next ``[B, T, D]``."""
        added, cache = self.layer.extend(self.norm(x), cache, positions=positions)
        return x + self.dropout(added), cache

    def _place(self, name: str, x: jax.Array) -> jax.Array:
        return self.save_point(name, self.constrain(x, ("batch", "seq", None)))
