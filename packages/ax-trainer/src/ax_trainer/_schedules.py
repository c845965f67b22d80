"""Schedules that optax hasn't: functions from the number of updates done to a value, for ``config_for``.

Of optax's, these are the usual ones: ``warmup_cosine_decay_schedule``, ``linear_schedule``, ``constant_schedule``,
``piecewise_constant_schedule``, ``warmup_constant_schedule``, ``join_schedules``.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from ._learning_rate import Schedule


def warmup_stable_decay(
    *,
    peak_value: float,
    warmup_steps: int,
    stable_steps: int,
    decay_steps: int,
    end_value: float = 0.0,
    decay: Literal["linear", "cosine", "sqrt"] = "linear",
) -> Schedule:
    """Up in a line from 0, then level, then down (WSD: Hu et al. 2024, arXiv:2404.06395).

    A run can be prolonged from any step before the decay, by larger ``stable_steps``. ``decay`` is the shape of the way
    down: a line, a half cosine, or ``1 - sqrt`` of the part that is done (Hägele et al. 2024, arXiv:2405.18392, §3).

    Raises:
        ValueError: A number of steps is negative, or there is no decay.
    """
    if min(warmup_steps, stable_steps) < 0 or decay_steps < 1:
        raise ValueError(
            f"warmup_stable_decay has warmup_steps, stable_steps >= 0 and decay_steps >= 1, got {warmup_steps}, {stable_steps} and "
            f"{decay_steps}"
        )

    def schedule(count: jax.Array) -> jax.Array:
        n = jnp.asarray(count, jnp.float32)
        done = jnp.clip((n - warmup_steps - stable_steps) / decay_steps, 0.0, 1.0)
        left = {"linear": 1 - done, "cosine": (1 + jnp.cos(jnp.pi * done)) / 2, "sqrt": 1 - jnp.sqrt(done)}[decay]
        upward = peak_value * n / max(warmup_steps, 1)
        return jnp.where(n < warmup_steps, upward, end_value + (peak_value - end_value) * left)

    return schedule


def rewarmed(*, before: Schedule, after: Schedule, start: int, warmup_steps: int) -> Schedule:
    """``before`` until ``start``, and from there ``after``, counted from its own 0, reached in a line over ``warmup_steps``.

    For a run that goes on with new data or a new budget (Ibrahim et al. 2024, arXiv:2403.08763): its schedule jumps nowhere, and
    what it did up to ``start`` is what it did.

    Raises:
        ValueError: A number of steps is negative.
    """
    if min(start, warmup_steps) < 0:
        raise ValueError(f"rewarmed has start, warmup_steps >= 0, got {start} and {warmup_steps}")

    def schedule(count: jax.Array) -> jax.Array:
        n = jnp.asarray(count, jnp.int32)
        since = jnp.maximum(n - start, 0)
        low, high = before(jnp.asarray(start, jnp.int32)), after(jnp.asarray(warmup_steps, jnp.int32))
        upward = low + (high - low) * since.astype(jnp.float32) / max(warmup_steps, 1)
        return jnp.where(n < start, before(n), jnp.where(since < warmup_steps, upward, after(since)))

    return schedule
