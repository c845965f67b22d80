"""The usual optimizer, as a config over optax: clip, rule, weight decay, learning rate.

It is an ``optax.chain``, equal number for number to ``chain(clip_by_global_norm(c), adamw(…))``, that differs in what it
needs not recompute and what it tells: clipping takes the gradients' norm from the step, the learning rate stands in the
state where the step can report it, and which parameters decay is read from their specs. (Counting an array's own dims,
as is usual, would decay the norms of a stack of scanned layers, which are ``[layers, dim]``.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, cast

import ax_config
import jax
import jax.numpy as jnp
from ax_config import Buildable, field

from .protocols import Optimizer, Spec, SupportsWeightDecay

Schedule: TypeAlias = Callable[[jax.Array], jax.Array]
"""From the number of updates done to the learning rate; optax's fit."""


def _adam() -> Buildable[Optimizer]:
    import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

    return ax_config.config_for(optax.scale_by_adam)(b1=0.9, b2=0.95, eps=1e-8)


class Learner:
    """Makes the optimizer for a model's parameters; see the module's docstring."""

    class Config(ax_config.Config["Learner"]):
        """What optimizer to make. With the defaults and a schedule it is AdamW without weight decay."""

        schedule: Buildable[Schedule]
        """The learning rate: ``config_for(optax.warmup_cosine_decay_schedule)(…)``."""
        rule: Buildable[Optimizer] = field(default_factory=_adam)
        """What turns gradients into a direction, learning rate not included: an ``optax.scale_by_…``."""
        clip_norm: float | None = None
        """Gradients of a larger global norm are scaled down to it."""
        weight_decay: float = 0.0
        """How much of a parameter is added to its direction (decoupled, as in AdamW), where it decays at all."""
        stacking_axes: tuple[str, ...] = ("layers",)
        """Logical axes along which parameters are merely stacked, so that they count for no dim in ``decay_mask``."""

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def for_specs(self, specs: object, /) -> Optimizer:
        """The ``optax.GradientTransformationExtraArgs`` for parameters of these specs."""
        import optax

        cfg = self.cfg
        links: list[object] = []
        if cfg.clip_norm is not None:
            links.append(_clip(cfg.clip_norm))
        links.append(cfg.rule.build())
        if cfg.weight_decay:
            links.append(optax.add_decayed_weights(cfg.weight_decay, mask=decay_mask(specs, cfg.stacking_axes)))
        links.append(_scale_by_learning_rate(cfg.schedule.build()))
        return cast("Optimizer", optax.chain(*links))


def decay_mask(specs: object, stacking_axes: tuple[str, ...] = ("layers",)) -> object:
    """Which parameters decay: a tree of bools, to be given to optax as a ``mask``.

    A spec that has ``weight_decay`` says it itself (``SupportsWeightDecay``). Of the others matrices decay: those that have
    two dims or more beside the ``stacking_axes``.
    """

    def decays(spec: Spec) -> bool:
        if isinstance(spec, SupportsWeightDecay):
            return spec.weight_decay
        return sum(axis not in stacking_axes for axis in spec.axes) >= 2

    return jax.tree.map(decays, specs)


def _clip(max_norm: float) -> Optimizer:
    """``optax.clip_by_global_norm`` that is told the norm."""
    import optax

    def update(
        updates: object, state: object, _params: object = None, *, grad_norm: jax.Array, **_: object
    ) -> tuple[object, object]:
        def clip(x: jax.Array) -> jax.Array:
            return jax.lax.select(grad_norm < max_norm, x, (x / grad_norm.astype(x.dtype)) * max_norm)

        return jax.tree.map(clip, updates), state

    return cast("Optimizer", optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update))


class LearningRateState(NamedTuple):
    """How many updates have been done, and the learning rate of the last one."""

    num_updates: jax.Array
    learning_rate: jax.Array


def _scale_by_learning_rate(schedule: Schedule) -> Optimizer:
    """``optax.scale_by_learning_rate`` that remembers the rate."""
    import optax

    def init(_: object) -> LearningRateState:
        return LearningRateState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))

    def update(updates: object, state: LearningRateState, _: object = None) -> tuple[object, LearningRateState]:
        rate = jnp.asarray(schedule(state.num_updates), jnp.float32)
        scaled = jax.tree.map(lambda x: (-rate).astype(x.dtype) * x, updates)
        return scaled, LearningRateState(optax.safe_increment(state.num_updates), rate)

    return cast("Optimizer", optax.GradientTransformation(init, update))
