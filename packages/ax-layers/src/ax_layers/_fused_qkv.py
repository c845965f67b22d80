"""Queries, keys and values by one matmul, grouped by key-value heads.

One wide product keeps an accelerator busier than three narrow ones. The output is laid out in groups, ``[K, G + 2, H]``: the
``G`` queries that share a key-value head, then its key and its value, so that a split over key-value heads leaves each group on
one device. Shape suffixes as in ``_attention``; G queries of a group.
"""

from __future__ import annotations

import ax_config
import jax
from ax_config import REQUIRED, Buildable, field

from ._linear import Linear
from ._module import Module, scoped
from .protocols import Projection


class FusedQKV(Module):
    """One projection for all three; fits ``QKVProjection``."""

    class Config(ax_config.Config["FusedQKV"]):
        """What attention tells it, and the projection."""

        dim: int = REQUIRED
        num_heads: int = REQUIRED
        num_kv_heads: int = REQUIRED
        head_dim: int = REQUIRED
        projection: Buildable[Projection] = field(default_factory=Linear.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._heads = (cfg.num_heads, cfg.head_dim)
        self._group = cfg.num_heads // cfg.num_kv_heads
        self.projection = self.child(
            "projection",
            cfg.projection,
            in_dim=cfg.dim,
            out_dim=(cfg.num_kv_heads, self._group + 2, cfg.head_dim),
            in_axes=("embed",),
            out_axes=("kv_heads", None, None),
        )

    @scoped
    def __call__(self, x: jax.Array, /) -> tuple[jax.Array, jax.Array, jax.Array]:
        """``[B, T, D]`` → queries ``[B, T, N, H]``, keys and values ``[B, T, K, H]``."""
        y_BTKGH = self.projection(x)
        queries = y_BTKGH[..., : self._group, :].reshape(*x.shape[:2], *self._heads)
        return queries, y_BTKGH[..., self._group, :], y_BTKGH[..., self._group + 1, :]
