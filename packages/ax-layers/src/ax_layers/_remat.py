"""Rematerialisation: forget a layer's intermediate values and compute them again in the backward pass.

What to keep is said by name. Modules give names to the points worth it (``Module.save_point``): "layer_input", "query",
"key", "value", "attention" (before the output projection), "attention_output", "layer_output", "ffn_gate", "ffn_up",
"ffn_output"; of latent attention also "latent" and "rotary_key". Kernels may name what their backward pass needs, such as
"attention_residuals" of ``ax_kernels.attention.blocked``.
"""

from __future__ import annotations

from collections.abc import Callable

import ax_config
import jax
from ax_config import REQUIRED, Buildable

from ._context import Collected
from ._functional import functional
from ._module import scoped
from ._wrapper import Wrapper
from .protocols import ArrayTree, SequenceLayer


class Remat(Wrapper):
    """A layer that keeps only what it is told to; fits ``SequenceLayer``."""

    class Config(ax_config.Config["Remat"]):
        """The layer and what to keep of it; by default nothing but its inputs."""

        dim: int = REQUIRED
        layer: Buildable[SequenceLayer]
        save: tuple[str, ...] = ()  # save points to keep
        save_matmuls: bool = False  # keep the results of all matmuls with weights
        offload: tuple[str, ...] = ()  # save points to keep in the host's memory
        prevent_cse: bool = True  # off under Repeat, whose scan keeps XLA from undoing the rematerialisation already

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if both := set(cfg.save) & set(cfg.offload):
            raise ValueError(f"Remat is told both to save and to offload {sorted(both)}")
        self._policy = _policy(cfg)
        self._prevent_cse = cfg.prevent_cse
        self._layer = self.wrap(cfg.layer, dim=cfg.dim)

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """The layer, rematerialised."""
        call, random = functional(self._layer), self.random

        def run(params: ArrayTree, x: jax.Array) -> tuple[jax.Array, Collected]:
            return call(params, random, x, positions=positions, segments=segments)

        run = jax.checkpoint(run, policy=self._policy, prevent_cse=self._prevent_cse)
        x, collected = run(self.params, x)
        self.absorb(collected)
        return x

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        """The layer's."""
        return self._layer.init_cache(batch_size=batch_size, max_length=max_length)

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        """The layer's; decoding has no backward pass, so there is nothing to forget."""
        (x, cache), collected = functional(self._layer.extend)(self.params, self.random, x, cache, positions=positions)
        self.absorb(collected)
        return x, cache


def _policy(cfg: Remat.Config) -> Callable[..., bool]:
    policies = jax.checkpoint_policies
    by_name: Callable[..., bool] = policies.save_only_these_names(*cfg.save)
    if cfg.offload:
        by_name = policies.save_and_offload_only_these_names(
            names_which_can_be_saved=cfg.save,
            names_which_can_be_offloaded=cfg.offload,
            offload_src="device",
            offload_dst="pinned_host",
        )
    if not cfg.save_matmuls:
        return by_name
    matmuls: Callable[..., bool] = policies.dots_with_no_batch_dims_saveable

    def either(*args: object, **params: object) -> bool:  # or the token that tells where to offload to
        return matmuls(*args, **params) or by_name(*args, **params)

    return either
