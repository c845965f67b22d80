"""Tokens reach their experts where they are: no row is sent.

The assignments are sorted by expert, and each expert's run of rows is multiplied with its matrix. Nothing depends on the
order of the tokens. Shape suffixes: B batch, T length, D model dim, A assignments of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import ax_config
import jax
import jax.numpy as jnp
from ax_config import Buildable, field, partial_for

from ._gathered_weights import WIDTH, gathered, kept
from ._grouped_matmul import grouped_matmul
from ._module import Module, scoped
from .protocols import Axes, ExpertFn, GroupedMatmul, Routing


class Dropless(Module):
    """Every assignment is served, by one grouped matmul over all rows, sorted by expert (MegaBlocks, Gale et al. 2022,
    arXiv:2211.15841).

    Where experts are split over devices, each device sorts out the rows of its own experts among the tokens it has, and what
    it makes of them is summed over the devices. No row is sent; a device has room for the case that all are its own. Where
    tokens are split over the same devices, ``AllToAll`` is what scales.
    """

    class Config(ax_config.Config["Dropless"]):
        """Who multiplies."""

        grouped_matmul: Buildable[GroupedMatmul] = field(default_factory=lambda: partial_for(grouped_matmul))

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.grouped_matmul = self.child("grouped_matmul", cfg.grouped_matmul)

    @scoped
    def __call__(
        self,
        x: jax.Array,
        routing: Routing,
        weights: Sequence[jax.Array],
        axes: Sequence[Axes],
        expert: ExpertFn,
        /,
    ) -> tuple[jax.Array, jax.Array]:
        """See ``Dispatch``."""
        # The results of devices that share a token add up: those of its several experts, and of parts of one expert.
        split = ("expert", *dict.fromkeys(name for of_one in axes for name in of_one[1:] if name is not None))

        def on_one_device(
            x_BTD: jax.Array,
            tokens_BA: jax.Array,
            experts_BA: jax.Array,
            weights_BA: jax.Array,
            own_experts: jax.Array,
            *weights: jax.Array,
        ) -> jax.Array:
            num_batch, length, width = x_BTD.shape
            num_experts = own_experts.shape[0]
            own = experts_BA.reshape(-1) - own_experts[0]
            # Rows for experts elsewhere come last, in no group.
            groups = jnp.where((own >= 0) & (own < num_experts), own, num_experts)
            order = jnp.argsort(groups)
            sizes = jnp.bincount(groups, length=num_experts + 1)[:num_experts].astype(jnp.int32)
            rows = (jnp.arange(num_batch, dtype=jnp.int32)[:, None] * length + tokens_BA).reshape(-1)[order]

            def matmul(rows: jax.Array, weight: jax.Array) -> jax.Array:
                return self.grouped_matmul(rows, weight, sizes)

            whole = gathered(weights, axes, kept_split)
            out = expert(x_BTD.reshape(-1, width)[rows], whole, matmul)
            weighted = out.astype(jnp.float32) * weights_BA.reshape(-1)[order][:, None]
            y = jnp.zeros((num_batch * length, width), jnp.float32).at[rows].add(weighted).astype(out.dtype)
            return y.reshape((1,) * len(split) + (num_batch, length, width))

        batch: Axes = ("batch", None)
        in_axes: list[Axes] = [("batch", None, None), batch, batch, batch, ("expert",), *kept(axes)]
        arrays = (x, *routing, jnp.arange(weights[0].shape[0], dtype=jnp.int32), *weights)
        kept_split = self.sharder.split(in_axes, [a.shape for a in arrays], sharing=[WIDTH])
        call = self.sharder.shard_map(
            on_one_device, in_axes=in_axes, out_axes=(*split, "batch", None, None), sharing=[WIDTH]
        )
        parts = call(*arrays)
        y_BTD = parts.sum(axis=tuple(range(len(split))))
        sequences = jnp.arange(x.shape[0])[:, None]
        return y_BTD, jnp.zeros(x.shape[:2], jnp.int32).at[sequences, routing.tokens].add(1)
