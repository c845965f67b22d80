"""A batch piece by piece: the loss and the gradients of all of it, in the memory that a piece takes.

The pieces' gradients are weighted by the pieces' numbers of targets (the weight of the metric "loss"), so their mean is the
gradient of the whole batch's mean loss, however unevenly the targets are spread. Neighbouring rows go to different pieces:
where the batch is split over devices, each device cuts its own rows, and none is sent.

A loss may take more of a batch as a whole than the number of its targets: a mixture of experts takes their load. Then a pass
forward over all pieces finds it out first (``mean_statistics``), and each piece's loss, told of it, is its share of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp

from .protocols import Batch, Metrics

Gradients = TypeVar("Gradients")
Updates = TypeVar("Updates")
Statistics = TypeVar("Statistics")
Tree = TypeVar("Tree")


class Evaluated(NamedTuple, Generic[Gradients, Updates]):
    """What a step needs to know of a batch."""

    gradients: Gradients
    metrics: Metrics
    updates: Updates
    """The next values of the states that the model assigns."""


Evaluate = Callable[[Batch, jax.Array], Evaluated[Gradients, Updates]]
"""From a batch and a key."""


def in_microbatches(
    evaluate: Evaluate[Gradients, Updates],
    batch: Batch,
    key: jax.Array,
    *,
    num_microbatches: int,
    equally: bool = False,
) -> Evaluated[Gradients, Updates]:
    """``evaluate`` on ``num_microbatches`` equal parts of ``batch``, one after the other, each with a key of its own.

    Gradients and states are means weighted by the parts' numbers of targets, or plain ones if ``equally``; metrics by their own
    weights. Sums are float32.

    Raises:
        ValueError: The rows can't be divided so.
    """
    if num_microbatches == 1:
        return evaluate(batch, key)
    parts = _Parts(batch, num_microbatches)

    def weighted(part: Batch, index: jax.Array) -> tuple[Evaluated[Gradients, Updates], jax.Array]:
        gradients, metrics, updates = evaluate(parts.whole(part), jax.random.fold_in(key, index))
        weight = jnp.ones((), jnp.float32) if equally else metrics["loss"][1].astype(jnp.float32)
        products = {name: (_times(value, by), by.astype(jnp.float32)) for name, (value, by) in metrics.items()}
        return Evaluated(_times(gradients, weight), products, _times(updates, weight)), weight

    (gradients, sums, updates), total = parts.sum(weighted)
    types = jax.eval_shape(evaluate, parts.whole(cast("Batch", parts.first)), key)
    metrics = {name: (_over(value, by, types.metrics[name][0]), by) for name, (value, by) in sums.items()}
    return Evaluated(_over(gradients, total, types.gradients), metrics, _over(updates, total, types.updates))


def mean_statistics(
    collect: Callable[[Batch, jax.Array], Statistics], batch: Batch, key: jax.Array, *, num_microbatches: int
) -> Statistics:
    """The mean of what ``collect`` gives, arrays of floats, over the parts that ``in_microbatches`` makes, with the same keys."""
    if num_microbatches == 1:
        return collect(batch, key)
    parts = _Parts(batch, num_microbatches)

    def collected(part: Batch, index: jax.Array) -> Statistics:
        return collect(parts.whole(part), jax.random.fold_in(key, index))

    return cast("Statistics", jax.tree.map(lambda x: x / num_microbatches, parts.sum(collected)))


class _Parts:
    """A batch cut into equal parts, of which scalars are shared."""

    def __init__(self, batch: Batch, number: int) -> None:
        self._number = number
        self._shared = {name: x for name, x in batch.items() if not x.ndim}
        self._rows = {name: _parts(name, x, number) for name, x in batch.items() if x.ndim}
        self.first = {name: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for name, x in self._rows.items()}
        """What a part is like."""

    def whole(self, part: Batch) -> Batch:
        """A part with what all share."""
        return {**part, **self._shared}

    def sum(self, function: Callable[[Batch, jax.Array], Tree]) -> Tree:
        """Of what it gives for each part and its number, one after the other."""

        def add(sums: Tree, part: tuple[Batch, jax.Array]) -> tuple[Tree, None]:
            return cast("Tree", jax.tree.map(jnp.add, sums, function(*part))), None

        like = jax.eval_shape(function, cast("Batch", self.first), jnp.zeros((), jnp.int32))
        zeros = jax.tree.map(jnp.zeros_like, like)
        return cast("Tree", jax.lax.scan(add, zeros, (self._rows, jnp.arange(self._number)))[0])


def _parts(name: str, x: jax.Array, number: int) -> jax.Array:
    if x.shape[0] % number:
        raise ValueError(f"{number} microbatches can't be made of the {x.shape[0]} rows of the batch's {name!r}")
    return x.reshape(x.shape[0] // number, number, *x.shape[1:]).swapaxes(0, 1)


def _times(tree: Tree, weight: jax.Array) -> Tree:
    return cast("Tree", jax.tree.map(lambda x: x.astype(jnp.float32) * weight.astype(jnp.float32), tree))


def _over(sums: Tree, weight: jax.Array, types: Tree) -> Tree:
    """``sums / weight`` in the given types; zero where nothing has weight."""
    divisor = jnp.where(weight > 0, weight, 1.0)
    return cast("Tree", jax.tree.map(lambda x, like: (x / divisor).astype(like.dtype), sums, types))
