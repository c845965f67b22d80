"""Experts split over devices, to which tokens are sent (GShard, Lepikhin et al. 2020, arXiv:2006.16668, §3.2).

Each device sorts its assignments by the device of their expert, copies the tokens' rows into one block for each device, and
exchanges blocks. It multiplies the rows that it got with its own experts, by one grouped matmul, and the same exchange takes
the results back to where their tokens are: there they are weighted and summed. What is sent ahead is each row's expert, which
tells the receiver how much of a block counts.

All shapes are static, so a block has a fixed number of rows: that of the worst case, or less, and then what doesn't fit is
dropped. Shape suffixes: B batch, T length, D model dim, A assignments of a sequence, I all assignments of a device, N devices
that the experts are split over, R rows of a block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import ax_config
import jax
import jax.numpy as jnp
from ax_config import Buildable, field, partial_for

from ._exchange import padded_exchange
from ._gathered_weights import WIDTH, gathered, kept
from ._grouped_matmul import grouped_matmul
from ._module import Module, scoped
from .protocols import Axes, Exchange, ExpertFn, GroupedMatmul, Routing


class AllToAll(Module):
    """Every token's row is sent to the devices of its experts and comes back as their result; fits ``Dispatch``.

    ``room`` says how many rows a device can take, in units of what it would get if every device had the same load. Each
    sender has an equal share of it, rounded up. Of the assignments from one device to another those of the smallest weights
    are dropped when there are more; whether a token is served depends on the tokens that are on its device, then. With None
    nothing is ever dropped, and every device has room for the case that all devices send it all that they can: the
    assignments of all tokens of the group, or each token once for each of its own experts if that is less.

    Tokens may be split over the devices that experts are split over ("batch" by the same part of the mesh as "expert"), or over
    others ("seq" as well). Devices that have the same tokens divide the assignments among themselves. Where weights' inner dims
    are split, the parts of results are summed last, when there is one row a token.
    """

    class Config(ax_config.Config["AllToAll"]):
        """How much room there is, who sends and who multiplies."""

        room: float | None = None
        exchange: Buildable[Exchange] = field(default_factory=lambda: partial_for(padded_exchange))
        grouped_matmul: Buildable[GroupedMatmul] = field(default_factory=lambda: partial_for(grouped_matmul))

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        if cfg.room is not None and cfg.room <= 0:
            raise ValueError(f"room is more than 0, or None for the worst case, got {cfg.room}")
        self._room = cfg.room
        self.exchange = self.child("exchange", cfg.exchange)
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
        inner = tuple(dict.fromkeys(name for of_one in axes for name in of_one[1:] if name is not None))
        in_axes: list[Axes] = [*[("batch", None)] * len(routing), *kept(axes), ("batch", "seq", None)]
        # Tokens and experts may be split over the same devices: between the two layouts is the exchange.
        split = self.sharder.split(in_axes, [a.shape for a in (*routing, *weights, x)], sharing=["expert", WIDTH])
        over_experts, over_seq = split.get("expert", ()), split.get("seq", ())
        over_tokens = {*split.get("batch", ()), *over_seq}
        over_same_tokens = tuple(axis for axis in over_experts if axis not in over_tokens)
        num_experts, total_length = weights[0].shape[0], x.shape[1]

        def exchange(rows: jax.Array, num_sent: jax.Array, num_received: jax.Array) -> jax.Array:
            return self.exchange(rows, num_sent, num_received, axis_name=over_experts) if over_experts else rows

        def on_one_device(
            tokens_BA: jax.Array, experts_BA: jax.Array, weights_BA: jax.Array, *others: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            *weights, x_BTD = others
            num_batch, length, width = x_BTD.shape
            num_own = weights[0].shape[0]
            num_devices, num_parts = num_experts // num_own, total_length // length
            num_sharing = jax.lax.psum(1, over_same_tokens)

            tokens_BA = tokens_BA - _index(over_seq) * length
            is_own_I = ((tokens_BA >= 0) & (tokens_BA < length)).reshape(-1)
            turns_I = jnp.arange(is_own_I.size, dtype=jnp.int32) % num_sharing
            is_own_I &= turns_I == _index(over_same_tokens)
            most = min(math.ceil(is_own_I.size / num_sharing), num_batch * length * num_own)
            if self._room is not None:
                mean = is_own_I.size / (num_sharing * num_parts * num_devices)
                most = min(most, math.ceil(self._room * mean))
            experts_I, weights_I = experts_BA.reshape(-1), weights_BA.reshape(-1)
            sent = _blocks(is_own_I, experts_I // num_own, weights_I, num_blocks=num_devices, num_rows=most)

            rows_I = (jnp.arange(num_batch, dtype=jnp.int32)[:, None] * length + tokens_BA).reshape(-1)
            rows_NR = jnp.where(sent.counts, rows_I[sent.assignments], 0)
            # Rows for no expert of the receiver's come last with it, in no group.
            groups_NR = jnp.where(sent.counts, experts_I[sent.assignments] % num_own, num_own)
            if over_experts:
                groups_NR = jax.lax.all_to_all(groups_NR, over_experts, split_axis=0, concat_axis=0, tiled=True)
            num_received = (groups_NR < num_own).sum(axis=1, dtype=jnp.int32)
            received = exchange(x_BTD.reshape(-1, width)[rows_NR], sent.sizes, num_received).reshape(-1, width)

            groups = groups_NR.reshape(-1)
            order = jnp.argsort(groups)
            sizes = jnp.bincount(groups, length=num_own + 1)[:num_own].astype(jnp.int32)

            def matmul(rows: jax.Array, weight: jax.Array) -> jax.Array:
                return self.grouped_matmul(rows, weight, sizes)

            whole = gathered(weights, axes, split)
            out = expert(received.at[order].get(unique_indices=True), whole, matmul)
            out = out.at[jnp.argsort(order)].get(unique_indices=True).reshape(*groups_NR.shape, -1)

            out_NRD = exchange(out, num_received, sent.sizes)
            weighted = out_NRD.astype(jnp.float32) * jnp.where(sent.counts, weights_I[sent.assignments], 0.0)[..., None]
            y = jnp.zeros((num_batch * length, width), jnp.float32).at[rows_NR].add(weighted)
            reached = jnp.zeros(num_batch * length, jnp.int32).at[rows_NR].add(sent.counts.astype(jnp.int32))
            y, reached = jax.lax.psum((y, reached), over_same_tokens)
            y = y.astype(out.dtype).reshape((1,) * len(inner) + x_BTD.shape)
            return y, reached.reshape(num_batch, length)

        call = self.sharder.shard_map(
            on_one_device,
            in_axes=in_axes,
            out_axes=[(*inner, "batch", "seq", None), ("batch", "seq")],
            sharing=["expert", WIDTH],
        )
        parts, reached_BT = call(*routing, *weights, x)
        return parts.sum(axis=tuple(range(len(inner)))), reached_BT


class _Blocks(NamedTuple):
    """Which assignments go where; ``[N, R]``, but for ``sizes`` ``[N]``, how many of each block's first rows count."""

    assignments: jax.Array
    counts: jax.Array
    sizes: jax.Array


def _blocks(is_own: jax.Array, block: jax.Array, weights: jax.Array, *, num_blocks: int, num_rows: int) -> _Blocks:
    """For each block its own assignments of the largest weights, as many as there are rows."""
    block = jnp.where(is_own, block, num_blocks)
    numbers = jnp.arange(block.size, dtype=jnp.int32)
    _, _, order = jax.lax.sort((block, -jax.lax.stop_gradient(weights), numbers), num_keys=2)
    wanted_N = jnp.bincount(block, length=num_blocks + 1)[:num_blocks].astype(jnp.int32)
    sizes_N = jnp.minimum(wanted_N, num_rows)
    rows_R = jnp.arange(num_rows, dtype=jnp.int32)[None, :]
    places_NR = (jnp.cumsum(wanted_N) - wanted_N)[:, None] + rows_R
    return _Blocks(order[jnp.minimum(places_NR, block.size - 1)], rows_R < sizes_N[:, None], sizes_N)


def _index(over: tuple[str, ...]) -> jax.Array | int:
    """Which part this device has of what is split ``over`` these."""
    return jax.lax.axis_index(over) if over else 0
