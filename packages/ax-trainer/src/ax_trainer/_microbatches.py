"""A batch piece by piece: the loss and the gradients of all of it, in the memory that a piece takes.

The pieces' gradients are weighted by the pieces' numbers of targets (the weight of the metric "loss"), so their mean is the
gradient of the whole batch's mean loss, however unevenly the targets are spread. Neighbouring rows go to different pieces:
where the batch is split over devices, each device cuts its own rows, and none is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp

from .protocols import Batch, Metrics

Gradients = TypeVar("Gradients")
Updates = TypeVar("Updates")
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
    evaluate: Evaluate[Gradients, Updates], batch: Batch, key: jax.Array, *, num_microbatches: int
) -> Evaluated[Gradients, Updates]:
    """``evaluate`` on ``num_microbatches`` equal parts of ``batch``, one after the other, each with a key of its own.

    Gradients and states are means weighted by the parts' numbers of targets, metrics by their own weights. Sums are float32.

    Raises:
        ValueError: The rows can't be divided so.
    """
    if num_microbatches == 1:
        return evaluate(batch, key)
    rows = {name: x for name, x in batch.items() if x.ndim}
    shared = {name: x for name, x in batch.items() if not x.ndim}
    parts = {name: _parts(name, x, num_microbatches) for name, x in rows.items()}

    def weighted(part: Batch, index: jax.Array) -> Evaluated[Gradients, Updates]:
        gradients, metrics, updates = evaluate({**part, **shared}, jax.random.fold_in(key, index))
        weight = metrics["loss"][1].astype(jnp.float32)
        products = {name: (_times(value, by), by.astype(jnp.float32)) for name, (value, by) in metrics.items()}
        return Evaluated(_times(gradients, weight), products, _times(updates, weight))

    def add(
        sums: Evaluated[Gradients, Updates], part: tuple[Batch, jax.Array]
    ) -> tuple[Evaluated[Gradients, Updates], None]:
        return cast("Evaluated[Gradients, Updates]", jax.tree.map(jnp.add, sums, weighted(*part))), None

    first = {name: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for name, x in parts.items()}
    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(weighted, first, jnp.zeros((), jnp.int32)))
    gradients, sums, updates = jax.lax.scan(add, zeros, (parts, jnp.arange(num_microbatches)))[0]
    types = jax.eval_shape(evaluate, {**first, **shared}, key)
    total = sums["loss"][1]
    metrics = {name: (_over(value, by, types.metrics[name][0]), by) for name, (value, by) in sums.items()}
    return Evaluated(_over(gradients, total, types.gradients), metrics, _over(updates, total, types.updates))


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
