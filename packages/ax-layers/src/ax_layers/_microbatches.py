"""A batch cut into microbatches, and what was collected of each put together again.

Microbatch ``m`` of ``M`` has rows ``m, m + M, …``: where rows are split over devices, every device has its part of each
microbatch already, and nothing is sent.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ._as_model import AUX_LOSS, is_of_batch
from ._context import Collected, Summary


def cut(x: jax.Array, number: int, /) -> jax.Array:
    """``[B, …] → [M, B / M, …]``.

    Raises:
        ValueError: ``M`` doesn't divide ``B``.
    """
    if x.shape[0] % number:
        raise ValueError(f"a batch of {x.shape[0]} sequences can't be cut into {number} microbatches of the same size")
    return x.reshape(x.shape[0] // number, number, *x.shape[1:]).swapaxes(0, 1)


def joined(x: jax.Array, /) -> jax.Array:
    """``[M, B / M, …] → [B, …]``, what ``cut`` undoes."""
    return x.swapaxes(0, 1).reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def merged(collected: Collected, /, *, dim: int, num_rows: int) -> Collected:
    """What was collected of each microbatch, stacked along ``dim``, as of the whole batch of ``num_rows``.

    Weights of summaries add up; auxiliary losses, statistics of the batch and the next values of states are means, as with batches
    that follow one another. Of a state that is no float the last microbatch's value stays. Other outputs stay stacked; what calls
    returned is joined again, if it has rows.
    """

    def mean(x: jax.Array) -> jax.Array:
        if jnp.issubdtype(x.dtype, jnp.floating):
            return x.mean(axis=dim, dtype=jnp.float32).astype(x.dtype)
        return jax.lax.index_in_dim(x, x.shape[dim] - 1, dim, keepdims=False)

    def summary(stacked: Summary) -> Summary:
        weight = stacked.weight.sum(axis=dim)
        return Summary((stacked.mean * stacked.weight).sum(axis=dim) / jnp.maximum(weight, 1e-30), weight)

    def rows(x: jax.Array) -> jax.Array:
        has_rows = x.ndim > dim + 1 and x.shape[dim] * x.shape[dim + 1] == num_rows
        return jnp.moveaxis(joined(jnp.moveaxis(x, (dim, dim + 1), (0, 1))), 0, dim) if has_rows else x

    return Collected(
        {name: summary(each) for name, each in collected.summaries.items()},
        {
            name: mean(each) if is_aux_loss(name) or is_of_batch(name) else each
            for name, each in collected.outputs.items()
        },
        {name: mean(each) for name, each in collected.updates.items()},
        {name: rows(each) for name, each in collected.results.items()},
    )


def is_aux_loss(name: str, /) -> bool:
    """Whether the output of this path is added to the loss."""
    return name.rsplit("/", 1)[-1] == AUX_LOSS
