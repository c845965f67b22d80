"""The same layer many times over, traced and compiled once.

The parameters of all repetitions are stacked on a leading "layers" axis, and a scan runs through them; caches and what
the layers collect are stacked alike. Layer ``i`` draws its parameters and its random numbers with the key of the stack
folded by ``i``.
"""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable

from ._context import Collected
from ._functional import functional
from ._module import scoped
from ._param_spec import ParamSpec, SpecTree
from ._wrapper import Wrapper
from .protocols import ArrayTree, SequenceLayer


class Repeat(Wrapper):
    """``num_layers`` copies of a layer, one after the other; fits ``SequenceLayer``."""

    class Config(ax_config.Config["Repeat"]):
        """How often, and what."""

        dim: int = REQUIRED
        num_layers: int
        layer: Buildable[SequenceLayer]
        unroll: int = 1  # layers per iteration of the scan: more of them compile longer and may run faster

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.num_layers < 1:
            raise ValueError(f"Repeat needs num_layers of at least 1, got {cfg.num_layers}")
        self._num_layers = cfg.num_layers
        self._unroll = cfg.unroll
        self._layer = self.wrap(cfg.layer, dim=cfg.dim)

    def specs(self) -> SpecTree:
        """The layer's, with a leading "layers" axis."""

        def stacked(spec: ParamSpec) -> ParamSpec:
            return spec.stacked(self._num_layers, "layers")

        tree: SpecTree = jax.tree.map(stacked, super().specs())
        return tree

    def init(self, key: jax.Array, /) -> ArrayTree:
        """The layers' parameters, stacked."""
        return jax.vmap(lambda i: self._inner.init(jax.random.fold_in(key, i)))(jnp.arange(self._num_layers))

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """All layers'."""
        return self._num_layers * super().training_flops_per_token(seq_length)

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """All layers on a whole sequence."""
        call, random = functional(self._layer), self.random

        def body(x: jax.Array, layer: tuple[ArrayTree, jax.Array | None]) -> tuple[jax.Array, Collected]:
            params, i = layer
            key = None if random is None or i is None else random.fold(i)
            return call(params, key, x, positions=positions, segments=segments)

        x, collected = jax.lax.scan(body, x, (self.params, self._indices()), self._num_layers, unroll=self._unroll)
        self.absorb(collected)
        return x

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """The layers' caches, stacked."""
        one = self._layer.init_cache(batch_size=batch_size, max_length=max_length)
        tree: ArrayTree = jax.tree.map(lambda x: jnp.broadcast_to(x, (self._num_layers, *x.shape)), one)
        return tree

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """All layers on the next piece of a sequence."""
        call, random = functional(self._layer.extend), self.random

        def body(
            x: jax.Array, layer: tuple[ArrayTree, ArrayTree, jax.Array | None]
        ) -> tuple[jax.Array, tuple[ArrayTree, Collected]]:
            params, cache, i = layer
            key = None if random is None or i is None else random.fold(i)
            (x, cache), collected = call(params, key, x, cache, positions=positions)
            return x, (cache, collected)

        layers = (self.params, cache, self._indices())
        x, (cache, collected) = jax.lax.scan(body, x, layers, self._num_layers, unroll=self._unroll)
        self.absorb(collected)
        return x, cache

    def _indices(self) -> jax.Array | None:
        return None if self.random is None else jnp.arange(self._num_layers)
