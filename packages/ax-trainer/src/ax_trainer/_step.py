"""The step: a pure function from a state and a batch to the next state and what to report.

``train_step`` is that function for a model and an optimizer. ``lower_step`` traces it for described arrays, which may lie on
devices that nobody here has; ``compile_step`` makes it runnable: one program, whose old state's memory is the new state's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, cast

import jax
import jax.numpy as jnp

from ._details import details_of
from ._learnt import completed, learnt, specs_of
from ._microbatches import Evaluated, in_microbatches, mean_statistics
from ._promotion import standard_promotion
from ._remembered import as_remembered
from ._skipping import chosen
from ._state import TrainState, abstract_state, shardings_of
from ._told import learning_rates, told
from .protocols import (
    Batch,
    Metrics,
    Model,
    Optimizer,
    Params,
    Partitioner,
    SupportsBatchStatistics,
    SupportsCompilerOptions,
    SupportsStateUpdates,
)


def train_step(
    model: Model[Params],
    optimizer: Optimizer,
    *,
    num_microbatches: int = 1,
    exact_microbatches: bool = False,
    details: bool = False,
    partitioner: Partitioner | None = None,
) -> Callable[[TrainState[Params], Batch], tuple[TrainState[Params], Metrics]]:
    """The function ``(state, batch) -> (next state, metrics)``, to be jitted; the batch in pieces, if so told.

    Metrics are the model's own, ``grad_norm``, and what the optimizer's state tells (see ``Optimizer``): ``learning_rate``, that of a
    group as "learning_rate/group"; ``skipped``, 1 if the step left everything as it was; ``loss_scale``. States that the model
    updates itself (``SupportsStateUpdates``) are assigned last. Where ``partitioner`` splits the optimizer's state further
    than the parameters, gradients and updates are split alike.

    Args:
        model: What is trained.
        optimizer: How.
        num_microbatches: Parts of the batch whose gradients are computed one after the other.
        exact_microbatches: Whether the parts are told what they need to know of the whole batch, so that all is as if it weren't
            in parts, for the time of a forward pass more; for models that are ``SupportsBatchStatistics``.
        details: Whether the norms of each parameter, its gradient and its update are among the metrics; see ``details_of``.
        partitioner: Where arrays lie.

    Raises:
        ValueError: ``exact_microbatches`` of a model that doesn't support it.
    """
    import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

    update = optax.with_extra_args_support(optimizer).update
    states = model if isinstance(model, SupportsStateUpdates) else _Stateless(model)
    specs = specs_of(model, optimizer)
    split = as_remembered(partitioner, specs)
    exact = _exact(model) if exact_microbatches else None

    def step(state: TrainState[Params], batch: Batch) -> tuple[TrainState[Params], Metrics]:
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
        learning = learnt(specs, state.params)
        loss_scale = told(state.opt_state, "loss_scale")
        statistics: object = None
        if exact is not None:
            statistics = mean_statistics(
                lambda part, key: exact.batch_statistics(state.params, part, key=key),
                batch,
                key,
                num_microbatches=num_microbatches,
            )

        def evaluate(batch: Batch, key: jax.Array) -> Evaluated[Params, object]:
            def loss(learning: Params) -> tuple[jax.Array, tuple[Metrics, object]]:
                params = completed(learning, state.params)
                if exact is None:
                    loss, rest = states.loss_and_updates(params, batch, key=key, train=True)
                else:
                    loss, rest = exact.loss_and_updates_of_part(params, batch, statistics, key=key)
                return (loss if loss_scale is None else loss * loss_scale.astype(loss.dtype)), rest

            (_, (metrics, assigned)), grads = jax.value_and_grad(loss, has_aux=True)(learning)
            if loss_scale is not None:
                grads = jax.tree.map(lambda x: x / loss_scale.astype(x.dtype), grads)
            return Evaluated(split(grads), _checked(metrics), assigned)

        grads, metrics, assigned = in_microbatches(
            evaluate, batch, key, num_microbatches=num_microbatches, equally=exact is not None
        )
        with standard_promotion():
            grad_norm = optax.tree.norm(grads)
            updates, opt_state = update(grads, state.opt_state, learning, grad_norm=grad_norm, value=metrics["loss"][0])
            updates = split(updates)
            params = completed(optax.apply_updates(learning, updates), state.params)
        params = states.updated(params, assigned)
        reports = {"grad_norm": grad_norm, **learning_rates(opt_state)}
        skipped = told(opt_state, "skipped")
        if skipped is not None:
            params = chosen(skipped, state.params, params)
            reports["skipped"] = skipped.astype(jnp.float32)
        if loss_scale is not None:
            reports["loss_scale"] = loss_scale
        if details:
            reports |= details_of(specs, gradients=grads, updates=updates, params=params)
        once = jnp.ones((), jnp.float32)
        return (
            TrainState(params, opt_state, state.step + 1, state.key),
            {**metrics, **{name: (value, once) for name, value in reports.items()}},
        )

    return step


def _exact(model: Model[Params]) -> SupportsBatchStatistics[Params, object, object]:
    if isinstance(model, SupportsBatchStatistics):
        return model
    raise ValueError(
        f"exact_microbatches is for models that tell what their loss takes of a batch as a whole, but {type(model).__qualname__} lacks "
        "batch_statistics() or loss_and_updates_of_part(). If its loss is a mean over targets, microbatches are exact without"
    )


@dataclass(frozen=True)
class _Stateless(Generic[Params]):
    """A model that learns all of its parameters, as ``SupportsStateUpdates``."""

    model: Model[Params]

    def loss_and_updates(
        self, params: Params, batch: Batch, /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, tuple[Metrics, None]]:
        loss, metrics = self.model.loss(params, batch, key=key, train=train)
        return loss, (metrics, None)

    def updated(self, params: Params, _updates: object, /) -> Params:
        return params


def _checked(metrics: Metrics) -> Metrics:
    if "loss" not in metrics:
        raise ValueError(
            f"the model's loss() reports no metric 'loss', only {sorted(metrics)}; give it with its weight"
        )
    return metrics


def eval_step(model: Model[Params]) -> Callable[[Params, jax.Array, Batch], Metrics]:
    """The function ``(params, key data, batch) -> metrics``, to be jitted. It can't change anything."""

    def step(params: Params, key: jax.Array, batch: Batch) -> Metrics:
        _, metrics = model.loss(params, batch, key=jax.random.wrap_key_data(key), train=False)
        return _checked(metrics)

    return step


def lower_step(
    model: Model[Params],
    optimizer: Optimizer,
    partitioner: Partitioner,
    batch: Mapping[str, jax.ShapeDtypeStruct],
    *,
    num_microbatches: int = 1,
    exact_microbatches: bool = False,
    details: bool = False,
    platform: str | None = None,
) -> jax.stages.Lowered:
    """The donated step, traced for the described ``batch`` (leaves carry their shardings). Touches no device.

    ``platform``, such as "neuron", has to be told where shardings are those of a ``jax.sharding.AbstractMesh``.
    """
    state = abstract_state(model, optimizer, partitioner)
    step = jax.jit(
        train_step(
            model,
            optimizer,
            num_microbatches=num_microbatches,
            exact_microbatches=exact_microbatches,
            details=details,
            partitioner=partitioner,
        ),
        donate_argnums=0,
        out_shardings=(shardings_of(state), partitioner.replicated()),
    )
    with partitioner.activate():
        if platform is None:
            return step.lower(state, batch)
        lowered: jax.stages.Lowered = step.trace(state, batch).lower(lowering_platforms=(platform,))
        return lowered


@dataclass(frozen=True)
class CompiledStep(Generic[Params]):
    """A step ready to run. Calling it consumes the state that it is given."""

    executable: jax.stages.Compiled
    batch: Mapping[str, jax.ShapeDtypeStruct]
    """What it was compiled for."""
    seconds: float
    """How long tracing and compiling took."""

    def __call__(self, state: TrainState[Params], batch: Batch) -> tuple[TrainState[Params], Metrics]:
        """The next state and the metrics, as soon as the devices have been told."""
        try:
            return cast("tuple[TrainState[Params], Metrics]", self.executable(state, batch))
        except (TypeError, ValueError) as error:
            if describe(batch) == self.batch:
                raise
            raise ValueError(
                f"the step is compiled for batches like the first:\n  {_written(self.batch)}\nbut this one is\n  "
                f"{_written(describe(batch))}\nPad the batch, or drop what doesn't fill one"
            ) from error


def compile_step(
    model: Model[Params],
    optimizer: Optimizer,
    partitioner: Partitioner,
    batch: Mapping[str, jax.ShapeDtypeStruct],
    *,
    num_microbatches: int = 1,
    exact_microbatches: bool = False,
    details: bool = False,
) -> CompiledStep[Params]:
    """``lower_step``, compiled with the partitioner's options (``SupportsCompilerOptions``), with the time that both took."""
    start = time.perf_counter()
    options = partitioner.compiler_options if isinstance(partitioner, SupportsCompilerOptions) else {}
    lowered = lower_step(
        model,
        optimizer,
        partitioner,
        batch,
        num_microbatches=num_microbatches,
        exact_microbatches=exact_microbatches,
        details=details,
    )
    executable = lowered.compile(compiler_options=dict(options))
    return CompiledStep(executable, batch, time.perf_counter() - start)


def describe(batch: Batch) -> Mapping[str, jax.ShapeDtypeStruct]:
    """The shapes, dtypes and shardings of a batch that lies on the devices."""
    return {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for name, x in batch.items()}


def _written(batch: Mapping[str, jax.ShapeDtypeStruct]) -> str:
    return ", ".join(f"{name} {x.dtype}{list(x.shape)}" for name, x in sorted(batch.items()))
