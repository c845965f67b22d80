"""The learning rate as the last link of an optimizer, which remembers it so that it can be reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp

from .protocols import Optimizer

Schedule: TypeAlias = Callable[[jax.Array], jax.Array]
"""From the number of updates done to the learning rate; optax's fit."""


class LearningRateState(NamedTuple):
    """How many updates have been done, and the learning rate of the last one."""

    num_updates: jax.Array
    learning_rate: jax.Array


def scale_by_learning_rate(schedule: Schedule, *, factor: float = 1.0) -> Optimizer:
    """``optax.scale_by_learning_rate``, of ``factor`` times the schedule, that remembers the rate."""
    import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

    def init(_: object) -> LearningRateState:
        return LearningRateState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))

    def update(updates: object, state: LearningRateState, _: object = None) -> tuple[object, LearningRateState]:
        rate = jnp.asarray(schedule(state.num_updates), jnp.float32)
        rate = rate if factor == 1.0 else rate * factor
        scaled = jax.tree.map(lambda x: (-rate).astype(x.dtype) * x, updates)
        return scaled, LearningRateState(optax.safe_increment(state.num_updates), rate)

    return cast("Optimizer", optax.GradientTransformation(init, update))
