"""The transformer block, with norms before its two layers, after them, or both.

Pre-norm (Xiong et al. 2020, arXiv:2002.04745) is ``norm``; OLMo 2's norm of what a layer gives is ``output_norm``; Gemma's
sandwich is both. The residual stream itself is never normalised.
"""

from __future__ import annotations

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field

from ._dropout import Dropout
from ._identity import Identity
from ._module import Module, scoped
from ._rms_norm import RMSNorm
from .protocols import ArrayFn, ArrayTree, SequenceLayer


class Block(Module):
    """``x + output_norm(attention(norm(x)))``, then the same with ``ffn``; fits ``SequenceLayer``.

    ``attention`` may be any layer that mixes positions, ``ffn`` any that doesn't.
    """

    class Config(ax_config.Config["Block"]):
        """The two layers, and what stands around them."""

        dim: int = REQUIRED
        attention: Buildable[SequenceLayer]
        ffn: Buildable[ArrayFn]
        norm: Buildable[ArrayFn] = field(default_factory=RMSNorm.Config)  # built once for each of the two
        output_norm: Buildable[ArrayFn] = field(default_factory=Identity.Config)  # alike
        dropout: Buildable[ArrayFn] = field(default_factory=Dropout.Config)  # on what each of the two adds

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.attention_norm = self.child("attention_norm", cfg.norm, dim=cfg.dim)
        self.attention = self.child("attention", cfg.attention, dim=cfg.dim)
        self.attention_output_norm = self.child("attention_output_norm", cfg.output_norm, dim=cfg.dim)
        self.attention_dropout = self.child("attention_dropout", cfg.dropout)
        self.ffn_norm = self.child("ffn_norm", cfg.norm, dim=cfg.dim)
        self.ffn = self.child("ffn", cfg.ffn, dim=cfg.dim)
        self.ffn_output_norm = self.child("ffn_output_norm", cfg.output_norm, dim=cfg.dim)
        self.ffn_dropout = self.child("ffn_dropout", cfg.dropout)

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """``[B, T, D] → [B, T, D]``."""
        x = self._place("layer_input", x)
        attended = self.attention(self.attention_norm(x), positions=positions, segments=segments)
        return self._feed_forward(self._add_attended(x, self._place("attention_output", attended)))

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """The attention's."""
        return self.attention.init_cache(batch_size=batch_size, max_length=max_length)

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """The next ``[B, T, D]``."""
        attended, cache = self.attention.extend(self.attention_norm(x), cache, positions=positions)
        return self._feed_forward(self._add_attended(x, attended)), cache

    def _add_attended(self, x: jax.Array, attended: jax.Array) -> jax.Array:
        return x + self.attention_dropout(self.attention_output_norm(attended))

    def _feed_forward(self, x: jax.Array) -> jax.Array:
        output = self._place("ffn_output", self.ffn(self.ffn_norm(x)))
        return x + self.ffn_dropout(self.ffn_output_norm(output))

    def _place(self, name: str, x: jax.Array) -> jax.Array:
        return self.save_point(name, self.constrain(x, ("batch", "seq", None)))
