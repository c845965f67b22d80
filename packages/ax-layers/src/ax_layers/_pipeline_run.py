"""A run of layers for one microbatch, as a stage of a pipeline carries it out: forward, and backward in one piece.

The layers are stacked; a ``number`` of -1 marks a place that holds none, in runs that are shorter than others. Backward
begins with the run's input and computes the rest again, so that between the two nothing else has to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from ._context import Collected
from ._microbatches import is_aux_loss

R = TypeVar("R")
Leaves: TypeAlias = "list[jax.Array]"
Layer: TypeAlias = Callable[[Leaves, jax.Array, jax.Array], tuple[jax.Array, Collected]]
"""``(parameters, number, x) -> (y, collected)`` of one layer for one microbatch."""


class Places(NamedTuple):
    """Layers one after the other: their parameters and their numbers, both stacked."""

    params: Leaves
    number: jax.Array


@dataclass(frozen=True)
class Run:
    """What is done with such layers, some of whose places may be ``empty``: passed by, or in ``lockstep`` with stages that have a
    layer there computed too and thrown away.

    ``learnt`` are the parameters with gradients; ``aux_weight`` is that of an auxiliary loss of one microbatch.
    """

    empty: bool
    lockstep: bool
    learnt: Sequence[bool]
    aux_weight: float

    def forward(self, layer: Layer, places: Places, x: jax.Array, /) -> tuple[jax.Array, Collected]:
        """The output, and what was collected, stacked by place."""

        def body(x: jax.Array, place: Places) -> tuple[jax.Array, Collected]:
            return self.at_place(place.number, lambda x: layer(place.params, place.number, x), x)

        return jax.lax.scan(body, x, places)

    def at_place(
        self, number: jax.Array, filled: Callable[[jax.Array], tuple[jax.Array, R]], x: jax.Array, /
    ) -> tuple[jax.Array, R]:
        """``filled(x)``; at an empty place ``x`` and zeros."""
        if not self.empty:
            return filled(x)
        nothing = x, zeros_of(filled, x)[1]
        if self.lockstep:
            return either(number >= 0, filled(x), nothing)
        through: tuple[jax.Array, R] = jax.lax.cond(number >= 0, filled, lambda _: nothing, x)
        return through

    def backward(self, layer: Layer, places: Places, x: jax.Array, gradient: jax.Array, /) -> tuple[jax.Array, Leaves]:
        """The gradients of the input and of the learnt parameters, for the output's gradient and the auxiliary losses."""

        def call(learnt: Leaves, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            params = completed(learnt, places.params, self.learnt)
            y, collected = self.forward(layer, Places(params, places.number), x)
            return y, aux_loss(collected)

        _, pullback = jax.vjp(call, chosen(places.params, self.learnt), x)
        of_params, of_x = pullback((gradient, jnp.float32(self.aux_weight)))
        return of_x, of_params


def chosen(leaves: Leaves, learnt: Sequence[bool], /) -> Leaves:
    """Those that are learnt."""
    return [leaf for leaf, is_learnt in zip(leaves, learnt, strict=True) if is_learnt]


def completed(values: Leaves, leaves: Leaves, learnt: Sequence[bool], /) -> Leaves:
    """All leaves, with other values for those that are learnt."""
    rest = iter(values)
    return [next(rest) if is_learnt else leaf for leaf, is_learnt in zip(leaves, learnt, strict=True)]


def aux_loss(collected: Collected, /) -> jax.Array:
    """The sum of all auxiliary losses, of all places."""
    parts = [value.astype(jnp.float32).sum() for name, value in collected.outputs.items() if is_aux_loss(name)]
    return sum(parts, jnp.zeros((), jnp.float32))


def either(condition: jax.Array, then: R, otherwise: R, /) -> R:
    """One tree or the other."""
    chosen: R = jax.tree.map(lambda a, b: jnp.where(condition, a, b), then, otherwise)
    return chosen


def zeros_of(fn: Callable[..., R], /, *args: object) -> R:
    """Zeros in the shape of what ``fn`` returns."""
    zeros: R = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(fn, *args))
    return zeros
