"""Averages of the parameters, to be evaluated and exported in their stead: less noisy than the last ones.

An average goes along in the optimizer's state, and so in checkpoints; training doesn't see it. ``averaged`` takes it out.
``ParameterAverage`` is a moving average whose decay is a schedule: constant for an exponential one, ``uniform_from`` for the plain mean of
all parameters since a step (Polyak and Juditsky 1992). ``ScheduleFree`` trains at a point between the average and the iterates
instead, and does without a decreasing learning rate. Parameters that aren't learnt, a model's own states too, are in an average as
they are.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, cast

import ax_config
import jax
import jax.numpy as jnp
from ax_config import Buildable, field

from ._learning_rate import Schedule
from ._learnt import completed
from ._promotion import standard_promotion
from ._state import TrainState, shardings_of
from .protocols import Optimizer, Params


class AverageState(NamedTuple):
    """Of an optimizer whose parameters are averaged."""

    inner_state: object
    num_updates: jax.Array
    average: object
    """A tree like the learnt parameters."""


def _constant() -> Buildable[Schedule]:
    import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

    return ax_config.config_for(optax.constant_schedule)(value=0.999)


class ParameterAverage:
    """``average = decay · average + (1 - decay) · parameters`` after each update, from the initial ones on; fits ``Averaging``."""

    class Config(ax_config.Config["ParameterAverage"]):
        """How long it remembers, and how precisely."""

        decay: Buildable[Schedule] = field(default_factory=_constant)
        """From the number of updates before to the share of the old average."""
        dtype: str | None = None
        """The average's type; None is the parameters'. In bfloat16 changes below 1/256 of a value are lost, so that a decay
        above 0.99 hardly moves it any more."""

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def around(self, optimizer: Optimizer, _schedule: Schedule, /) -> Optimizer:
        """``optimizer``, which an average goes along with."""
        import optax

        inner = optax.with_extra_args_support(optimizer)
        decay = self.cfg.decay.build()
        dtype = None if self.cfg.dtype is None else jnp.dtype(self.cfg.dtype)

        def init(params: object) -> AverageState:
            average = jax.tree.map(lambda x: x.astype(dtype or x.dtype, copy=True), params)
            return AverageState(inner.init(params), jnp.zeros((), jnp.int32), average)

        def update(
            updates: object, state: AverageState, params: object = None, **extra: object
        ) -> tuple[object, AverageState]:
            updates, inner_state = inner.update(updates, state.inner_state, params, **extra)
            kept = jnp.asarray(decay(state.num_updates), jnp.float32)

            def moved(average: jax.Array, new: jax.Array) -> jax.Array:
                old, new = average.astype(jnp.float32), new.astype(jnp.float32)
                return (kept * old + (1 - kept) * new).astype(average.dtype)

            average = jax.tree.map(moved, state.average, optax.apply_updates(params, updates))
            return updates, AverageState(inner_state, optax.safe_increment(state.num_updates), average)

        return cast("Optimizer", optax.GradientTransformationExtraArgs(init, update))


def uniform_from(*, start: int) -> Schedule:
    """The decay of a plain mean of the parameters after every update from number ``start`` (the first is 0) on; before, of the last."""

    def decay(count: jax.Array) -> jax.Array:
        others = jnp.maximum(count - start, 0).astype(jnp.float32)
        return others / (others + 1)

    return decay


class ScheduleFree:
    """Schedule-free learning (Defazio et al. 2024, arXiv:2405.15682), as optax has it; fits ``Averaging``.

    The learner's rule is to be without momentum (``b1=0.0``), which this brings, and its schedule a warm-up that then is constant.
    """

    class Config(ax_config.Config["ScheduleFree"]):
        """Its interpolation."""

        b1: float = 0.9
        """How near to the average gradients are taken, above 0."""
        weight_lr_power: float = 2.0
        """Iterates weigh by their largest learning rate so far to this power."""
        dtype: str | None = None
        """Of the iterates, which are remembered beside the parameters; None is theirs."""

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def around(self, optimizer: Optimizer, schedule: Schedule, /) -> Optimizer:
        """``optax.contrib.schedule_free`` of it."""
        import optax.contrib  # type: ignore[import-untyped]

        cfg = self.cfg
        made = optax.contrib.schedule_free(
            optimizer, schedule, b1=cfg.b1, weight_lr_power=cfg.weight_lr_power, state_dtype=cfg.dtype
        )
        return cast("Optimizer", made)


class _ScheduleFreeState(Protocol):
    """What is taken of ``optax.contrib.ScheduleFreeState``."""

    z: object


def averaged(state: TrainState[Params]) -> Params:
    """The averaged parameters, of the types and at the places of those in ``state``, which stays as it is.

    Raises:
        ValueError: Nothing is averaged in this state.
    """
    import optax.contrib

    kinds = (AverageState, optax.contrib.ScheduleFreeState)
    nodes = jax.tree.leaves(state.opt_state, is_leaf=lambda node: isinstance(node, kinds))
    found = [node for node in nodes if isinstance(node, kinds)]
    if not found:
        raise ValueError(
            "this state holds no average of its parameters: train with one (Learner.Config.average), or evaluate the "
            "parameters as they are"
        )

    return cast("Params", jax.jit(_taken, out_shardings=shardings_of(state.params))(found[0], state.params))


def _taken(node: AverageState | _ScheduleFreeState, params: Params) -> Params:
    import optax.contrib

    if isinstance(node, AverageState):
        part = node.average
    else:
        learnt = jax.tree.map(lambda z, x: None if z is None else x, node.z, params, is_leaf=lambda leaf: leaf is None)
        with standard_promotion():
            part = optax.contrib.schedule_free_eval_params(node, learnt)
    whole = completed(cast("Params", part), params)
    return cast("Params", jax.tree.map(lambda x, like: x.astype(like.dtype), whole, params))
