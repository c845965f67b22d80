"""Every expert has room for a fixed number of tokens of each sequence (GShard, Lepikhin et al. 2020, arXiv:2006.16668).

So all products are plain batched matmuls, and all devices exchange blocks of one size; what doesn't fit is dropped. Nothing
depends on the order of the tokens. Shape suffixes: B batch, T length, D model dim, E experts, A assignments of a sequence,
C the tokens of a sequence that an expert has room for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ax_config
import jax
import jax.numpy as jnp

from ._module import Module, scoped
from .protocols import Axes, ExpertFn, Routing


class Capacity(Module):
    """Of each sequence an expert takes ``factor`` times the assignments it would have if all had the same number.

    Those of the largest weights are kept (Riquelme et al. 2021, arXiv:2106.05974): whether a token is served depends on
    the tokens of its sequence, later ones and padding too, but neither on their order, nor on other sequences, nor on devices.

    Where experts are split over devices, tokens are sent to them by one all-to-all and come back by another, if the batch is
    split over these devices too; those that have the same tokens take the rows of their own experts instead, and results are
    summed over them. Devices that the sequence is split over put it together, and divide each expert's tokens among themselves.
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
        axes: Sequence[Axes],
        expert: ExpertFn,
        /,
    ) -> tuple[jax.Array, jax.Array]:
        """See ``Dispatch``."""
        inner = tuple(dict.fromkeys(name for of_one in axes for name in of_one[1:] if name is not None))
        in_axes: list[Axes] = [*[("batch", None)] * len(routing), *axes, ("batch", "seq", None)]
        split = self.sharder.split(in_axes, [a.shape for a in (*routing, *weights, x)], sharing=["expert"])
        over_experts, over_batch, over_seq = (split.get(name, ()) for name in ("expert", "batch", "seq"))
        over_both = tuple(axis for axis in over_experts if axis in over_batch)
        over_same_tokens = tuple(axis for axis in over_experts if axis not in over_batch)
        num_experts, length = weights[0].shape[0], x.shape[1]
        capacity = min(length, math.ceil(self._factor * routing.tokens.shape[1] / num_experts))

        def on_one_device(
            tokens_BA: jax.Array, experts_BA: jax.Array, weights_BA: jax.Array, *others: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            *weights, x_BTD = others
            if over_seq:
                x_BTD = jax.lax.all_gather(x_BTD, over_seq, axis=1, tiled=True)
            sequences_B1 = jnp.arange(x_BTD.shape[0])[:, None]
            wanted_BET = jnp.full((x_BTD.shape[0], num_experts, length), -1.0, jnp.float32)
            wanted_BET = wanted_BET.at[sequences_B1, experts_BA, tokens_BA].set(weights_BA)
            wanted_BET = wanted_BET[:, _experts_to_reach(num_experts, over_experts, but=over_same_tokens)]
            weights_BEC, tokens_BEC = jax.lax.top_k(wanted_BET, capacity)
            weights_BEC, tokens_BEC = _part(weights_BEC, over_seq, fill=-1), _part(tokens_BEC, over_seq, fill=0)
            taken_BEC = weights_BEC >= 0

            sequences_B11 = sequences_B1[:, :, None]
            rows_BECD = x_BTD[sequences_B11, tokens_BEC]
            if over_both:  # the tokens of all devices for this one's experts
                rows_BECD = jax.lax.all_to_all(rows_BECD, over_both, split_axis=1, concat_axis=0, tiled=True)

            def matmul(rows: jax.Array, weight: jax.Array) -> jax.Array:
                return jnp.einsum("becd,edf->becf", rows, weight)

            out_BECD = expert(rows_BECD, weights, matmul)
            if over_both:
                out_BECD = jax.lax.all_to_all(out_BECD, over_both, split_axis=0, concat_axis=1, tiled=True)
            weighted = out_BECD.astype(jnp.float32) * jnp.where(taken_BEC, weights_BEC, 0.0)[..., None]
            y_BTD = jnp.zeros(x_BTD.shape, jnp.float32).at[sequences_B11, tokens_BEC].add(weighted)
            reached_BT = jnp.zeros(x_BTD.shape[:2], jnp.int32)
            reached_BT = reached_BT.at[sequences_B11, tokens_BEC].add(taken_BEC.astype(jnp.int32))
            y_BTD, reached_BT = jax.lax.psum((y_BTD, reached_BT), over_same_tokens)
            if over_seq:
                y_BTD, reached_BT = (
                    jax.lax.psum_scatter(a, over_seq, scatter_dimension=1, tiled=True) for a in (y_BTD, reached_BT)
                )
            return y_BTD.astype(out_BECD.dtype).reshape((1,) * len(inner) + y_BTD.shape), reached_BT

        call = self.sharder.shard_map(
            on_one_device,
            in_axes=in_axes,
            out_axes=[(*inner, "batch", "seq", None), ("batch", "seq")],
            sharing=["expert"],
        )
        parts, reached_BT = call(*routing, *weights, x)
        return parts.sum(axis=tuple(range(len(inner)))), reached_BT


def _experts_to_reach(num_experts: int, over: tuple[str, ...], *, but: tuple[str, ...]) -> jax.Array:
    """The experts, which are split ``over`` these, that are here or on devices that differ from this one along others than ``but``."""
    sizes = [jax.lax.axis_size(axis) for axis in over]
    experts = jnp.arange(num_experts, dtype=jnp.int32).reshape(*sizes, -1)
    for dim, axis in enumerate(over):
        if axis in but:
            experts = jax.lax.dynamic_index_in_dim(experts, jax.lax.axis_index(axis), dim)
    return experts.reshape(-1)


def _part(chosen_BEC: jax.Array, over: tuple[str, ...], *, fill: int) -> jax.Array:
    """This device's part of each expert's tokens, where they are divided ``over`` these; the last part is filled up."""
    if not over:
        return chosen_BEC
    num_parts, num_chosen = jax.lax.axis_size(over), chosen_BEC.shape[2]
    size = -(-num_chosen // num_parts)
    padded = jnp.pad(chosen_BEC, [(0, 0), (0, 0), (0, size * num_parts - num_chosen)], constant_values=fill)
    return jax.lax.dynamic_slice_in_dim(padded, jax.lax.axis_index(over) * size, size, axis=2)
