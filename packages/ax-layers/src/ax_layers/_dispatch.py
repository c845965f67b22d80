"""How tokens reach their experts, and the experts' outputs their tokens.

Two ways, which fit ``Dispatch``. ``Dropless`` sorts the assignments by expert and multiplies each expert's run of rows with
its matrix. ``Capacity`` gives every expert a fixed number of rows in each sequence, so that all products are plain batched
matmuls, and drops what doesn't fit (GShard, Lepikhin et al. 2020, arXiv:2006.16668).

Neither depends on the order of the tokens. Shape suffixes: B batch, T length, D model dim, E experts, A assignments of
a sequence, C capacity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ax_config
import jax
import jax.numpy as jnp
from ax_config import Buildable, field, partial_for

from ._grouped_matmul import grouped_matmul
from ._module import Module, scoped
from .protocols import Axes, ExpertFn, GroupedMatmul, Routing


class Dropless(Module):
    """Every assignment is served, by one grouped matmul over all rows, sorted by expert (MegaBlocks, Gale et al. 2022,
    arXiv:2211.15841).

    Where experts are split over devices, each device sorts out the rows of its own experts among the tokens it has, and what
    it makes of them is summed over the devices. No row is sent; a device has room for the case that all are its own.
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

            out = expert(x_BTD.reshape(-1, width)[rows], weights, matmul)
            weighted = out.astype(jnp.float32) * weights_BA.reshape(-1)[order][:, None]
            y = jnp.zeros((num_batch * length, width), jnp.float32).at[rows].add(weighted).astype(out.dtype)
            return y.reshape((1,) * len(split) + (num_batch, length, width))

        batch: Axes = ("batch", None)
        call = self.sharder.shard_map(
            on_one_device,
            in_axes=[("batch", None, None), batch, batch, batch, ("expert",), *axes],
            out_axes=(*split, "batch", None, None),
        )
        own_experts = jnp.arange(weights[0].shape[0], dtype=jnp.int32)
        parts = call(x, routing.tokens, routing.experts, routing.weights, own_experts, *weights)
        y_BTD = parts.sum(axis=tuple(range(len(split))))
        sequences = jnp.arange(x.shape[0])[:, None]
        return y_BTD, jnp.zeros(x.shape[:2], jnp.int32).at[sequences, routing.tokens].add(1)


class Capacity(Module):
    """Of each sequence an expert takes ``factor`` times the assignments it would have if all had the same number.

    Those of the largest weights are kept (Riquelme et al. 2021, arXiv:2106.05974): whether a token is served depends on
    the tokens of its sequence, later ones and padding too, but neither on their order nor on other sequences.
    """

    class Config(ax_config.Config["Capacity"]):
        """How much room there is."""

        factor: float = 1.25

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.factor <= 0:
            raise ValueError(f"a capacity factor is more than 0, got {cfg.factor}")
        self._factor = cfg.factor

    @scoped
    def __call__(
        self,
        x: jax.Array,
        routing: Routing,
        weights: Sequence[jax.Array],
        axes: Sequence[Axes],  # noqa: ARG002  # the compiler splits plain matmuls by itself
        expert: ExpertFn,
        /,
    ) -> tuple[jax.Array, jax.Array]:
        """See ``Dispatch``."""
        (num_batch, length, _), num_experts = x.shape, weights[0].shape[0]
        capacity = min(length, math.ceil(self._factor * routing.tokens.shape[1] / num_experts))
        sequences_B1 = jnp.arange(num_batch)[:, None]
        wanted_BET = jnp.full((num_batch, num_experts, length), -1.0, jnp.float32)
        wanted_BET = wanted_BET.at[sequences_B1, routing.experts, routing.tokens].set(routing.weights)
        weights_BEC, tokens_BEC = jax.lax.top_k(wanted_BET, capacity)
        taken_BEC = weights_BEC >= 0

        sequences_B11 = sequences_B1[:, :, None]
        rows_BECD = self._place(x[sequences_B11, tokens_BEC])

        def matmul(rows: jax.Array, weight: jax.Array) -> jax.Array:
            return jnp.einsum("becd,edf->becf", rows, weight)

        out_BECD = self._place(expert(rows_BECD, weights, matmul))
        weighted = out_BECD.astype(jnp.float32) * jnp.where(taken_BEC, weights_BEC, 0.0)[..., None]
        y_BTD = jnp.zeros(x.shape, jnp.float32).at[sequences_B11, tokens_BEC].add(weighted).astype(out_BECD.dtype)
        reached_BT = jnp.zeros((num_batch, length), jnp.int32)
        return y_BTD, reached_BT.at[sequences_B11, tokens_BEC].add(taken_BEC.astype(jnp.int32))

    def _place(self, rows_BECD: jax.Array) -> jax.Array:
        return self.constrain(rows_BECD, ("batch", "expert", None, None))
