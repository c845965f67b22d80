"""Feed-forwards: the plain one (Vaswani et al. 2017), and the gated one (SwiGLU and kin; Shazeer 2020, arXiv:2002.05202)."""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, field, partial_for

from ._linear import Linear
from ._module import Module, scoped
from .protocols import ArrayFn, Projection


def relu_squared(x: jax.Array, /) -> jax.Array:
    """``max(x, 0)²`` (So et al. 2021, arXiv:2109.08668)."""
    return jnp.square(jax.nn.relu(x))


class FeedForward(Module):
    """``down(activation(up(x)))``; fits ``ArrayFn``."""

    class Config(ax_config.Config["FeedForward"]):
        """The inner width and the parts."""

        dim: int = REQUIRED
        hidden_dim: int
        activation: Buildable[ArrayFn] = field(default_factory=lambda: partial_for(jax.nn.gelu))
        up: Buildable[Projection] = field(default_factory=Linear.Config)
        down: Buildable[Projection] = field(default_factory=Linear.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.up = self.child(
            "up", cfg.up, in_dim=cfg.dim, out_dim=cfg.hidden_dim, in_axes=("embed",), out_axes=("mlp",)
        )
        self.down = self.child(
            "down", cfg.down, in_dim=cfg.hidden_dim, out_dim=cfg.dim, in_axes=("mlp",), out_axes=("embed",)
        )
        self.activation = self.child("activation", cfg.activation)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[B, T, D] → [B, T, D]``."""
        up = self.save_point("ffn_up", self.up(x))
        return self.down(self.constrain(self.activation(up), ("batch", "seq", "mlp")))


class GatedFeedForward(Module):
    """``down(activation(gate(x)) · up(x))``; fits ``ArrayFn``."""

    class Config(ax_config.Config["GatedFeedForward"]):
        """The inner width and the parts."""

        dim: int = REQUIRED
        hidden_dim: int
        activation: Buildable[ArrayFn] = field(default_factory=lambda: partial_for(jax.nn.silu))
        gate: Buildable[Projection] = field(default_factory=Linear.Config)
        up: Buildable[Projection] = field(default_factory=Linear.Config)
        down: Buildable[Projection] = field(default_factory=Linear.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        inward = {"in_dim": cfg.dim, "out_dim": cfg.hidden_dim, "in_axes": ("embed",), "out_axes": ("mlp",)}
        outward = {"in_dim": cfg.hidden_dim, "out_dim": cfg.dim, "in_axes": ("mlp",), "out_axes": ("embed",)}
        self.gate = self.child("gate", cfg.gate, **inward)
        self.up = self.child("up", cfg.up, **inward)
        self.down = self.child("down", cfg.down, **outward)
        self.activation = self.child("activation", cfg.activation)

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        """``[B, T, D] → [B, T, D]``."""
        gate = self.save_point("ffn_gate", self.gate(x))
        up = self.save_point("ffn_up", self.up(x))
        inner = self.constrain(self.activation(gate) * up, ("batch", "seq", "mlp"))
        return self.down(inner)
