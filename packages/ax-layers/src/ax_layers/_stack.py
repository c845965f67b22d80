"""Different layers, one after the other.

With ``Repeat`` it makes every stack of today: a pattern that repeats is a ``Repeat`` of a ``Stack`` (one scan, a pattern an
iteration), and layers that don't fit the pattern stand beside it in an outer ``Stack``:

    Repeat.Config(num_layers=8, layer=Stack.Config(layers={"local": Repeat.Config(num_layers=5, layer=local), "global": full}))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import ax_config
import jax
from ax_config import REQUIRED, Buildable

from ._module import Module, scoped
from .protocols import ArrayTree, SequenceLayer


class Stack(Module):
    """Its layers in the order in which they are named; fits ``SequenceLayer``."""

    class Config(ax_config.Config["Stack"]):
        """The layers by name."""

        dim: int = REQUIRED
        layers: Mapping[str, Buildable[SequenceLayer]]

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if not cfg.layers:
            raise ValueError("Stack needs at least one layer")
        self.layers = {name: self.child(name, layer, dim=cfg.dim) for name, layer in cfg.layers.items()}

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """All layers on a whole sequence."""
        for layer in self.layers.values():
            x = layer(x, positions=positions, segments=segments)
        return x

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """The layers' caches by name."""
        return {
            name: layer.init_cache(batch_size=batch_size, max_length=max_length) for name, layer in self.layers.items()
        }

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """All layers on the next piece of a sequence."""
        extended: dict[str, jax.Array | ArrayTree] = {}
        for name, layer in self.layers.items():
            x, extended[name] = layer.extend(x, cast("ArrayTree", cache[name]), positions=positions)
        return x, extended
