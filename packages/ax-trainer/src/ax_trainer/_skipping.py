"""Steps that are skipped: an update that would do harm leaves everything as it was, and training goes on with the next batch.

It is decided on the devices, within the step, from the loss and the norm of the gradients, so nothing waits for the host. A
skipped step changes no parameter, no state of the model and nothing that the optimizer remembers (its count of updates, and so
the learning rate's schedule, stands still), bit for bit; what the rules themselves remember goes on. The step reports "skipped".
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar, cast

import ax_config
import jax
import jax.numpy as jnp

from .protocols import Optimizer, SkipRule

Tree = TypeVar("Tree")


class SkippingState(NamedTuple):
    """Of an optimizer some of whose updates are left out."""

    inner_state: object
    rules: tuple[object, ...]
    """What each rule remembers."""
    skipped: jax.Array
    """Whether the last step was."""


def skipping(inner: Optimizer, rules: Sequence[SkipRule]) -> Optimizer:
    """``inner``, whose update is none whenever a rule says so."""
    import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

    inner = optax.with_extra_args_support(inner)

    def init(params: object) -> SkippingState:
        return SkippingState(inner.init(params), tuple(rule.init() for rule in rules), jnp.zeros((), jnp.bool_))

    def update(
        updates: object,
        state: SkippingState,
        params: object = None,
        *,
        grad_norm: jax.Array,
        value: jax.Array,
        **extra: object,
    ) -> tuple[object, SkippingState]:
        loss, norm = value.astype(jnp.float32), grad_norm.astype(jnp.float32)
        judged = [
            rule.judge(remembered, loss=loss, grad_norm=norm)
            for rule, remembered in zip(rules, state.rules, strict=True)
        ]
        skipped = functools.reduce(jnp.logical_or, (verdict for verdict, _ in judged))
        extra = {"grad_norm": grad_norm, "value": value, **extra}
        updates, inner_state = cast("optax.TransformUpdateExtraArgsFn", inner.update)(
            updates, state.inner_state, params, **extra
        )
        updates = chosen(skipped, jax.tree.map(jnp.zeros_like, updates), updates)
        inner_state = chosen(skipped, state.inner_state, inner_state)
        return updates, SkippingState(inner_state, tuple(remembered for _, remembered in judged), skipped)

    return cast("Optimizer", optax.GradientTransformationExtraArgs(init, update))


def chosen(first: jax.Array, tree: Tree, other: Tree) -> Tree:
    """``tree`` if ``first``, else ``other``; nothing of the one that isn't chosen shows, not even a NaN."""
    return cast("Tree", jax.tree.map(functools.partial(jnp.where, first), tree, other))


class SkipNonFinite:
    """Skips steps whose loss or gradients are infinite or no number; fits ``SkipRule``."""

    class Config(ax_config.Config["SkipNonFinite"]):
        """There is nothing to say."""

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def init(self) -> tuple[()]:
        """It remembers nothing."""
        return ()

    def judge(self, state: object, /, *, loss: jax.Array, grad_norm: jax.Array) -> tuple[jax.Array, object]:
        """Whether one of the two isn't finite."""
        return ~(jnp.isfinite(loss) & jnp.isfinite(grad_norm)), state


class SpikeState(NamedTuple):
    """The running mean and variance of what is watched, and of how many values."""

    num_values: jax.Array
    mean: jax.Array
    variance: jax.Array


class SkipSpikes:
    """Skips steps whose gradients, or loss, are far larger than they have been lately; fits ``SkipRule``.

    Mean and variance are plain ones over the first ``1 / (1 - decay)`` values and move exponentially from then on. What is beyond
    the limit counts for them as the limit itself, so that a single spike hardly moves them and a level that stays is
    accepted after a while. Values that aren't finite are beyond any limit and don't count; until ``warm_up`` values have been seen
    nothing is skipped, these neither: put ``SkipNonFinite`` beside it.

    Raises:
        ValueError: It has no limit, or a number that makes no sense.
    """

    class Config(ax_config.Config["SkipSpikes"]):
        """What is watched, and how far is too far."""

        of: Literal["grad_norm", "loss"] = "grad_norm"
        factor: float | None = None
        """Times the mean; None: no such limit."""
        deviations: float | None = 6.0
        """Standard deviations above the mean; None: no such limit."""
        decay: float = 0.99
        warm_up: int = 100

    def __init__(self, cfg: Config, /) -> None:
        if cfg.factor is None and cfg.deviations is None:
            raise ValueError("SkipSpikes needs a limit: a factor, deviations, or both")
        if not 0 <= cfg.decay < 1 or cfg.warm_up < 1:
            raise ValueError(f"SkipSpikes has 0 <= decay < 1 and warm_up >= 1, got {cfg.decay} and {cfg.warm_up}")
        self.cfg = cfg

    def init(self) -> SpikeState:
        """Nothing seen."""
        zero = jnp.zeros((), jnp.float32)
        return SpikeState(jnp.zeros((), jnp.int32), zero, zero)

    def judge(self, state: object, /, *, loss: jax.Array, grad_norm: jax.Array) -> tuple[jax.Array, object]:
        """Whether the value is beyond a limit."""
        cfg, seen = self.cfg, cast("SpikeState", state)
        value = grad_norm if cfg.of == "grad_norm" else loss
        limit = jnp.full((), jnp.inf, jnp.float32)
        if cfg.factor is not None:
            limit = jnp.minimum(limit, cfg.factor * seen.mean)
        if cfg.deviations is not None:
            limit = jnp.minimum(limit, seen.mean + cfg.deviations * jnp.sqrt(seen.variance))
        skips = (seen.num_values >= cfg.warm_up) & ~(value <= limit)

        counted = jnp.where(skips, jnp.minimum(value, limit), value)
        share = jnp.maximum(1 - cfg.decay, 1 / (seen.num_values.astype(jnp.float32) + 1))
        difference = counted - seen.mean
        following = SpikeState(
            seen.num_values + 1,
            seen.mean + share * difference,
            (1 - share) * (seen.variance + share * difference**2),
        )
        return skips, chosen(jnp.isfinite(value), following, seen)
