"""The parallel block (GPT-J; Chowdhery et al. 2022, arXiv:2204.02311): attention and feed-forward side by side."""

from __future__ import annotations

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field

from ._dropout import Dropout
from ._module import Module, scoped
from ._rms_norm import RMSNorm
from .protocols import ArrayFn, ArrayTree, SequenceLayer


class ParallelBlock(Module):
    """``x + attention(norm(x)) + ffn(norm(x))``, one norm for both; fits ``SequenceLayer``."""

    class Config(ax_config.Config["ParallelBlock"]):
        """The two layers, and what stands around them."""

        dim: int = REQUIRED
        attention: Buildable[SequenceLayer]
        ffn: Buildable[ArrayFn]
        norm: Buildable[ArrayFn] = field(default_factory=RMSNorm.Config)
        dropout: Buildable[ArrayFn] = field(default_factory=Dropout.Config)  # on what the two add together

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.norm = self.child("norm", cfg.norm, dim=cfg.dim)
        self.attention = self.child("attention", cfg.attention, dim=cfg.dim)
        self.ffn = self.child("ffn", cfg.ffn, dim=cfg.dim)
        self.dropout = self.child("dropout", cfg.dropout)

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T, D] → [B, T, D]``."""
        x = self._place("layer_input", x)
        normed = self.norm(x)
        attended = self.attention(normed, positions=positions, segments=segments)
        return self._add(x, normed, self._place("attention_output", attended))

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """The attention's."""
        return self.attention.init_cache(batch_size=batch_size, max_length=max_length)

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """The next ``[B, T, D]``."""
        normed = self.norm(x)
        attended, cache = self.attention.extend(normed, cache, positions=positions)
        return self._add(x, normed, attended), cache

    def _add(self, x: jax.Array, normed: jax.Array, attended: jax.Array) -> jax.Array:
        return x + self.dropout(attended + self._place("ffn_output", self.ffn(normed)))

    def _place(self, name: str, x: jax.Array) -> jax.Array:
        return self.save_point(name, self.constrain(x, ("batch", "seq", None)))
