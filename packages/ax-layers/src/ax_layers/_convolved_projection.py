"""The projection that state-space and linear-attention layers make their queries, keys and values with."""

from __future__ import annotations

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field, partial_for

from ._causal_conv import CausalConv
from ._linear import Linear
from ._module import Module, scoped
from .protocols import ArrayFn, Projection, SequenceConv


class ConvolvedProjection(Module):
    """``activation(conv(projection(x)))``: each row knows a little of those just before it; fits ``SequenceProjection``."""

    class Config(ax_config.Config["ConvolvedProjection"]):
        """The interface of a projection, and the three parts."""

        in_dim: int | tuple[int, ...] = REQUIRED
        out_dim: int | tuple[int, ...] = REQUIRED
        in_axes: tuple[str | None, ...] = REQUIRED
        out_axes: tuple[str | None, ...] = REQUIRED
        projection: Buildable[Projection] = field(default_factory=Linear.Config)
        conv: Buildable[SequenceConv] = field(default_factory=CausalConv.Config)
        activation: Buildable[ArrayFn] = field(default_factory=lambda: partial_for(jax.nn.silu))

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.projection = self.child(
            "projection",
            cfg.projection,
            in_dim=cfg.in_dim,
            out_dim=cfg.out_dim,
            in_axes=cfg.in_axes,
            out_axes=cfg.out_axes,
        )
        self.conv = self.child("conv", cfg.conv, dim=cfg.out_dim, axes=cfg.out_axes)
        self.activation = self.child("activation", cfg.activation)

    @scoped
    def __call__(self, x: jax.Array, /, *, segments: jax.Array | None = None) -> jax.Array:
        """``[B, T, *in_dim] → [B, T, *out_dim]``."""
        return self.activation(self.conv(self.projection(x), segments=segments))

    def init_cache(self, *, batch_size: int) -> jax.Array:
        """The convolution's."""
        return self.conv.init_cache(batch_size=batch_size)

    @scoped
    def extend(self, x: jax.Array, cache: jax.Array, /, *, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The next ``[B, T, *in_dim]``."""
        y, cache = self.conv.extend(self.projection(x), cache, positions=positions)
        return self.activation(y), cache
