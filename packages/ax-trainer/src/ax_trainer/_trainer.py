"""The loop: batch, step, hooks, metrics, evaluation, checkpoint.

What happens at a step happens in this order, and that is what makes a run killed at any moment repeatable. A checkpoint
of step S is started when all metrics up to S, and the evaluation at S, are written. So whichever checkpoint is the newest
at a restart, the sinks hold everything up to it; what they hold of later steps is taken back (``MetricSink.rewind``) and
written again, bit for bit, because the checkpoint also holds the input's position and the PRNG key, and because a step's
randomness is a function of the key and the step's number alone. Evaluations draw on a key of their own and on a fresh pass
over their data: they leave no trace in the training.

The devices never wait for the host while steps follow each other: when step n has been dispatched the host prepares batch
n+1, then reads the metrics of step n-1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Literal, NamedTuple

import ax_config
import jax
from ax_config import REQUIRED, Buildable

from ._evaluator import Evaluator
from ._learnt import learnt
from ._logbook import Derive, Logbook, Values, WeightedMeans
from ._speed import Speedometer
from ._state import TrainState, abstract_state, init_state, keys_of
from ._step import CompiledStep, compile_step, describe, eval_step, lower_step
from .protocols import (
    Batch,
    BatchSource,
    Checkpointer,
    Hook,
    MetricSink,
    Model,
    Optimizer,
    Params,
    Partitioner,
    StopSignal,
    SupportsSpecs,
)

_INPUT = "input"


class CheckpointError(RuntimeError):
    """A state could not be saved, or lacks a part. Checkpoints that were complete before still are."""


@dataclass(frozen=True, eq=False)
class Result(Generic[Params]):
    """How a run ended."""

    step: int
    """The last step that was done."""
    why: Literal["finished", "stopped", "data"]
    """All steps are done; the stop signal came; or the data ended."""
    metrics: Mapping[str, Values]
    """The newest values by group: "train", "speed", each evaluator. Empty when this run had nothing left to do."""
    state: TrainState[Params]


class _Fed(NamedTuple):
    """A batch on the devices, and the input's position after it."""

    batch: Batch
    position: bytes


class Trainer(Generic[Params]):
    """Trains a model: see the module's docstring for the promises.

    Args:
        cfg: How long and how often.
        model: What to train.
        partitioner: On what.
        batches: The training data.
        evaluators: Held-out data by name; the name is the group under which the results go to the sinks.
        checkpointer: Where states go; without one nothing is saved.
        sinks: Where metrics go; closed when ``run`` ends.
        hooks: Called after each step's dispatch.
        stop: Asked after each step.
        derive: Values computed from the metrics of training and of each evaluation.
        tokens_per_step: To report tokens per second.
        flops_per_step: The model's FLOPs of a step; with ``peak_flops`` to report utilisation.
        peak_flops: What all devices together could do, in FLOP/s.
    """

    class Config(ax_config.Config["Trainer[object]"]):
        """How long to train and how often to look."""

        num_steps: int = REQUIRED
        """Train up to this step, counted over all runs that continue each other."""
        optimizer: Buildable[Optimizer] | Buildable[SupportsSpecs]
        """``config_for(optax.adamw)(…)``, any other optax transformation, or a ``Learner.Config``."""
        seed: int = 0
        """Of the initial parameters and of all randomness in the steps."""
        evaluate_every: int | None = None
        """Evaluate at multiples of this step, and at the last one; None means only there."""
        num_microbatches: int = 1
        """Parts of a batch whose gradients are computed one after the other, in so much less memory.

        The same step, but for what a model computes of a batch as a whole: a mixture of experts balances each part.
        """
        checkpoint_every: int | None = None
        """Save at multiples of this step, and whenever training ends; None means only then."""

    def __init__(
        self,
        cfg: Config,
        /,
        *,
        model: Model[Params],
        partitioner: Partitioner,
        batches: BatchSource,
        evaluators: Mapping[str, Evaluator] | None = None,
        checkpointer: Checkpointer | None = None,
        sinks: Sequence[MetricSink] = (),
        hooks: Sequence[Hook] = (),
        stop: StopSignal | None = None,
        derive: Derive | None = None,
        tokens_per_step: float | None = None,
        flops_per_step: float | None = None,
        peak_flops: float | None = None,
    ) -> None:
        _check(cfg, evaluators or {})
        self.cfg = cfg
        optimizer, specs = cfg.optimizer.build(), model.specs()
        self._optimizer = (
            optimizer.for_specs(learnt(specs, specs)) if isinstance(optimizer, SupportsSpecs) else optimizer
        )
        self._model = model
        self._partitioner = partitioner
        self._batches = batches
        self._evaluators = dict(evaluators or {})
        self._checkpointer = checkpointer
        self._sinks = tuple(sinks)
        self._hooks = tuple(hooks)
        self._stop = stop
        self._speedometer = Speedometer(
            tokens_per_step=tokens_per_step, flops_per_step=flops_per_step, peak_flops=peak_flops
        )
        self._log = Logbook(self._sinks, derive=derive or {}, speedometer=self._speedometer)
        self._eval_step = jax.jit(eval_step(model), out_shardings=partitioner.replicated())

    def abstract_state(self) -> TrainState[Params]:
        """The state's shapes, dtypes and shardings. Touches no device."""
        return abstract_state(self._model, self._optimizer, self._partitioner)

    def init_state(self) -> TrainState[Params]:
        """The state before the first step."""
        return init_state(self._model, self._optimizer, self._partitioner, seed=self.cfg.seed)

    def lower(self, batch: Mapping[str, jax.ShapeDtypeStruct], /, *, platform: str | None = None) -> jax.stages.Lowered:
        """The step, traced for a described batch; for which ``platform``, if devices are nowhere. Touches no device."""
        return lower_step(
            self._model,
            self._optimizer,
            self._partitioner,
            batch,
            num_microbatches=self.cfg.num_microbatches,
            platform=platform,
        )

    def compile(self, batch: Mapping[str, jax.ShapeDtypeStruct], /) -> CompiledStep[Params]:
        """The step, ready to run on batches like the described one."""
        return compile_step(
            self._model, self._optimizer, self._partitioner, batch, num_microbatches=self.cfg.num_microbatches
        )

    def run(self) -> Result[Params]:
        """Train: from the newest checkpoint if there is one, to ``num_steps``, the end of the data or a stop.

        When it returns the last state is saved and all metrics are written. Sinks are closed also when it raises.

        Raises:
            NonFiniteError: A loss or a gradient is infinite or not a number; such a state is never saved.
            CheckpointError: A state could not be saved, or the newest one holds no input position.
            ValueError: There is no data, or a batch differs in shape from the first.
        """
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)
            return self._run()

    def _run(self) -> Result[Params]:
        step, state = self._start()
        self._log.rewind(step)
        if step >= self.cfg.num_steps:
            return Result(step, "finished", {}, state)
        fed = self._feed()
        if fed is not None:
            return self._loop(step, state, fed)
        if step > 0:
            return Result(step, "data", {}, state)
        raise ValueError("the batch source gave no batch at all; is the data empty, or less than one batch?")

    def _loop(self, step: int, state: TrainState[Params], first: _Fed) -> Result[Params]:
        cfg, log = self.cfg, self._log
        run_step = self.compile(describe(first.batch))
        log.write(step, "speed", {"compile_seconds": run_step.seconds})
        self._speedometer.restart()
        fed: _Fed | None = first
        why: Literal["finished", "stopped", "data"] = "data"
        while fed is not None:
            position = fed.position
            state, metrics = run_step(state, fed.batch)
            step += 1
            for hook in self._hooks:
                hook.on_step(step)
            if step >= cfg.num_steps:
                fed, why = None, "finished"
            elif self._stop is not None and self._stop.should_stop(step):
                fed, why = None, "stopped"
            else:
                fed = self._feed()
            log.record(step, metrics)
            evaluates = _due(step, cfg.evaluate_every) or step >= cfg.num_steps
            saves = _due(step, cfg.checkpoint_every) or fed is None
            if evaluates or saves:
                log.flush()
                if evaluates:
                    self._evaluate(step, state.params)
                if saves:
                    self._save(step, state, position)
                self._speedometer.restart()
        self._wait(step)
        return Result(step, why, dict(log.latest), state)

    def _start(self) -> tuple[int, TrainState[Params]]:
        """The state to begin with, and the input at its place."""
        step = self._checkpointer.latest() if self._checkpointer is not None else None
        if self._checkpointer is None or step is None:
            return 0, self.init_state()
        state, blobs = self._checkpointer.restore(step, self.abstract_state())
        if _INPUT not in blobs:
            raise CheckpointError(f"the checkpoint of step {step} has no {_INPUT!r} among its blobs {sorted(blobs)}")
        self._batches.set_state(blobs[_INPUT])
        return step, state

    def _feed(self) -> _Fed | None:
        """The next batch, on its way to the devices; None at the end of the data."""
        batch = next(self._batches, None)
        return None if batch is None else _Fed(self._partitioner.put(batch), self._batches.get_state())

    def _evaluate(self, step: int, params: Params) -> None:
        key = jax.random.key_data(keys_of(self.cfg.seed).evaluations)
        for name, evaluator in self._evaluators.items():
            means, last = WeightedMeans(), None
            for batch in islice(evaluator.batches(), evaluator.max_batches):
                with self._partitioner.activate():
                    metrics = self._eval_step(params, key, self._partitioner.put(batch))
                if last is not None:
                    means.add(last)
                last = metrics
            if last is None:
                raise ValueError(f"evaluator {name!r} gave no batch at step {step}; give it data or leave it out")
            means.add(last)
            self._log.report(step, name, means.result())

    def _save(self, step: int, state: TrainState[Params], position: bytes) -> None:
        if self._checkpointer is None:
            return
        try:
            self._checkpointer.save(step, state, {_INPUT: position})
        except Exception as error:
            raise _unsaved(step, error) from error

    def _wait(self, step: int) -> None:
        if self._checkpointer is None:
            return
        try:
            self._checkpointer.wait()
        except Exception as error:
            raise _unsaved(step, error) from error


def _unsaved(step: int, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"at step {step} a checkpoint turns out not to be written: {error}. Mend the cause and run again: training goes on "
        "from the newest checkpoint"
    )


def _due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0


def _check(cfg: Trainer.Config, evaluators: Mapping[str, Evaluator]) -> None:
    for name, value in (
        ("num_steps", cfg.num_steps),
        ("num_microbatches", cfg.num_microbatches),
        ("evaluate_every", cfg.evaluate_every),
        ("checkpoint_every", cfg.checkpoint_every),
    ):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    taken = {"train", "speed"} & set(evaluators)
    if taken:
        raise ValueError(
            f"an evaluator can't be called {taken.pop()!r}: the trainer writes its own values under that name"
        )
