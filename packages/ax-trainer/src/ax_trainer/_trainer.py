"""The loop: batch, step, hooks, metrics, evaluation, checkpoint.

What happens at a step happens in this order, and that is what makes a run killed at any moment repeatable. A checkpoint
of step S is started when all metrics up to S, and the evaluation at S, are written. So whichever checkpoint is the newest
at a restart, the sinks hold everything up to it; what they hold of later steps is taken back (``MetricSink.rewind``) and
written again, bit for bit, because the checkpoint also holds the input's position, the PRNG key and what the loop remembers,
and because a step's randomness is a function of the key and the step's number alone. Evaluations draw on a key of their own
and on a fresh pass over their data: they leave no trace in the training.

Going back from a bad step (``BadSteps``) keeps that promise: model and memory go back to the checkpoint, the data stays behind the
bad batch. A process that is killed between that and the next checkpoint starts again from the same checkpoint, with the data as
it was then, meets the same bad batch and goes back alike. What depends on clocks can't be repeated: the groups "speed" and
"goodput", a limit of seconds, a signal to stop.

The devices never wait for the host while steps follow each other: when step n has been dispatched the host prepares batch
n+1, then reads the numbers of step n-1.

Several processes run the same loop, each on its part of every batch. What follows from numbers that all of them have, they decide
alike; what one of them alone knows, a signal or its clock, is voted on (``Agreement``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias

import ax_config
import jax
from ax_config import REQUIRED, Buildable

from ._activity import Activity
from ._agreement import Agreement
from ._arrivals import Arrivals
from ._bad_steps import WATCHED, BadSteps, Verdict
from ._budget import Budget, Spent
from ._checkpoints import Checkpoints, Memory, Snapshot
from ._compile_cache import lookups
from ._corruption import CorruptionError, find_corruption
from ._details import DETAILS
from ._early_stop import EarlyStop
from ._evaluator import Evaluations, Evaluator, is_due
from ._goodput import Goodput
from ._learnt import learnt
from ._logbook import Derive, Logbook, Values
from ._run import Landed, Run
from ._speed import Speedometer
from ._state import TrainState, abstract_state, init_state
from ._step import CompiledStep, compile_step, lower_step
from ._watchdog import Watchdog
from .protocols import (
    BatchSource,
    Checkpointer,
    Hook,
    MetricSink,
    Model,
    Optimizer,
    Params,
    Partitioner,
    StopSignal,
    SupportsOrigins,
    SupportsSpecs,
    SupportsStartAndEnd,
)

_LOG = logging.getLogger(__name__)

Why: TypeAlias = Literal["finished", "plateau", "seconds", "stopped", "data"] | Spent
"""Why a run ended: all steps are done; it got no better; its time is up; the stop signal came; the data ended; or what is spent."""

_WISHES: tuple[Why | None, ...] = (None, "stopped", "seconds")
"""What is voted on: the greatest wish comes true."""

_OWN_GROUPS = frozenset({"train", "speed", "goodput", "events", "details"})
_MOST_DOCUMENTS = 32


@dataclass(frozen=True, eq=False)
class Result(Generic[Params]):
    """How a run ended."""

    step: int
    """The last step that was done."""
    why: Why
    metrics: Mapping[str, Values]
    """The newest values by group: "train", "speed", "goodput", each evaluator. Empty when this run had nothing left to do."""
    state: TrainState[Params]


class _GoBackError(Exception):
    """A step is bad, and training goes back."""

    def __init__(self, verdict: Verdict, position: bytes) -> None:
        super().__init__(verdict.why)
        self.verdict = verdict
        self.position = position
        """Where the data goes on."""


class Trainer(Generic[Params]):
    """Trains a model: see the module's docstring for the promises.

    Args:
        cfg: How long and how often.
        model: What to train.
        partitioner: On what.
        batches: The training data.
        evaluators: Held-out data by name; the name is the group under which the results go to the sinks.
        checkpointer: Where states go; without one nothing is saved.
        sinks: Where metrics go; closed when ``run`` ends. Of several processes, only one should be given sinks.
        hooks: Called after each step's dispatch, and at start and end if they ``SupportsStartAndEnd``.
        stop: Asked after each step. Of several processes any may be told, all stop at the same step.
        derive: Values computed from the metrics of training and of each evaluation.
        tokens_per_step: To report tokens per second, and to limit tokens.
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
        """Evaluate at multiples of this step, and at the last one; None means only there. Evaluators may have schedules of their own."""
        num_microbatches: int = 1
        """Parts of a batch whose gradients are computed one after the other, in so much less memory.

        The same step, but for what a model computes of a batch as a whole: a mixture of experts balances each part.
        """
        exact_microbatches: bool = False
        """Whether the parts are told what they need to know of the whole batch, so that the step is exactly the same.

        For models that are ``SupportsBatchStatistics``; it takes the time of a forward pass more.
        """
        checkpoint_every: int | None = None
        """Save at multiples of this step, and whenever training ends; None means only then."""
        log_every: int = 1
        """Write the metrics of multiples of this step, of those that are evaluated and of the last one.

        Of others only the loss, the gradients' norm and ``skipped`` leave the devices, to be judged.
        """
        details_every: int | None = None
        """At multiples of this step, write the norms of each parameter, its gradient and its update, of each layer, under "details".

        These steps are a program of their own, compiled when first needed; the others cost nothing. None means never.
        """
        budget: Buildable[Budget] = ax_config.field(default_factory=Budget.Config)
        """Limits beside ``num_steps``."""
        early_stop: Buildable[EarlyStop] | None = None
        """When training ends because it gets no better; never, if None."""
        bad_steps: Buildable[BadSteps] = ax_config.field(default_factory=BadSteps.Config)
        """What is a bad step, and what to do about it."""
        compare_copies_every: int | None = None
        """At multiples of this step, and before a save, compare what several devices hold whole, bit for bit; None means never.

        Each array is read once, on its device.
        """
        watchdog: Buildable[Watchdog] | None = None
        """Notices a standstill; nobody does, if None."""

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
        self.cfg = cfg
        self._early_stop = None if cfg.early_stop is None else cfg.early_stop.build()
        _check(cfg, evaluators or {}, self._early_stop)
        optimizer, specs = cfg.optimizer.build(), model.specs()
        self._optimizer = (
            optimizer.for_specs(learnt(specs, specs)) if isinstance(optimizer, SupportsSpecs) else optimizer
        )
        self._model = model
        self._partitioner = partitioner
        self._batches = batches
        self._checkpoints: Checkpoints[Params] = Checkpoints(checkpointer)
        self._sinks = tuple(sinks)
        self._hooks = tuple(hooks)
        self._stop = stop
        self._bad_steps = cfg.bad_steps.build()
        self._budget = cfg.budget.build(batches=batches, tokens_per_step=tokens_per_step)
        self._speedometer = Speedometer(
            tokens_per_step=tokens_per_step, flops_per_step=flops_per_step, peak_flops=peak_flops
        )
        self._log = Logbook(self._sinks, derive=derive or {})
        self._evaluations = Evaluations(
            evaluators or {}, model=model, partitioner=partitioner, seed=cfg.seed, every=cfg.evaluate_every
        )

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
            exact_microbatches=self.cfg.exact_microbatches,
            platform=platform,
        )

    def compile(self, batch: Mapping[str, jax.ShapeDtypeStruct], /, *, details: bool = False) -> CompiledStep[Params]:
        """The step, ready to run on batches like the described one; ``details`` is for those at ``details_every``."""
        return compile_step(
            self._model,
            self._optimizer,
            self._partitioner,
            batch,
            num_microbatches=self.cfg.num_microbatches,
            exact_microbatches=self.cfg.exact_microbatches,
            details=details,
        )

    def run(self) -> Result[Params]:
        """Train: from the newest checkpoint if there is one, to ``num_steps``, a limit, the end of the data or a stop.

        When it returns the last state is saved and all metrics are written. Sinks are closed also when it raises.

        Raises:
            BadStepError: A step is bad and the policy says to stop; NonFiniteError if its numbers aren't finite. Such a state is
                never saved.
            CorruptionError: Devices hold different copies of what is the same.
            CheckpointError: A state could not be saved, or the newest one holds no input position.
            ValueError: There is no data, or a batch differs in shape from the first.
        """
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)
            run = self._begin(stack)
            with run.activity("start", "restoring or initialising the state"):
                self._start(run)
            late = self._budget.is_late(run.seconds_before)
            why: Why | None = self._spent(run) or ("seconds" if late else None)
            if why is not None:
                return Result(run.step, why, {}, run.state)
            if not run.feed():
                if run.step == 0:
                    raise ValueError(
                        "the batch source gave no batch at all; is the data empty, or less than one batch?"
                    )
                return Result(run.step, "data", {}, run.state)
            why = self._train(run)
            return Result(run.step, why, dict(self._log.latest), run.state)

    def _train(self, run: Run[Params]) -> Why:
        """Compile, and do steps until there is a reason to end; everything is saved and written then."""
        run.program(details=self._has_details(run.step + 1))
        with ExitStack() as stack:
            for hook in self._hooks:
                if isinstance(hook, SupportsStartAndEnd):
                    hook.on_start(run.step)
                    stack.callback(_end, hook, run)
            if run.step == 0:
                self._evaluate(run, self._evaluations.due(0, last=False))
            self._speedometer.restart()
            why: Why | None = None
            while why is None:
                try:
                    why = self._steps(run)
                except _GoBackError as bad:
                    why = self._go_back(run, bad.verdict, bad.position)
        with run.activity("checkpoint", "waiting for the last save"):
            self._checkpoints.wait(run.step)
        self._log.write(run.step, "goodput", run.goodput.report())
        return why

    def _steps(self, run: Run[Params]) -> Why:
        """The loop. The first batch is fed."""
        cfg = self.cfg
        why: Why | None = None
        while why is None:
            dispatched = run.dispatch(details=self._has_details(run.step + 1))
            for hook in self._hooks:
                hook.on_step(run.step)
            why = self._spent(run) or self._wished(run)
            if why is None and not run.feed():
                why = "data"
            evaluators = self._evaluations.due(run.step, last=why not in (None, "stopped"))
            is_written = self._is_logged(run.step) or bool(evaluators) or why not in (None, "stopped")
            run.await_numbers(dispatched, only=None if is_written else WATCHED)
            self._read(run, leaving=1)
            saves = is_due(run.step, cfg.checkpoint_every)
            compares = is_due(run.step, cfg.compare_copies_every)
            if evaluators or saves or compares or why is not None:
                self._read(run, leaving=0)
                if compares or (cfg.compare_copies_every is not None and (saves or why is not None)):
                    self._compare_copies(run)
                self._evaluate(run, evaluators)
                if why is None and self._is_plateau():
                    why = "plateau"
                    left = self._evaluations.due(run.step, last=True)
                    self._evaluate(run, [name for name in left if name not in evaluators])
                if saves or why is not None:
                    self._save(run)
                if why is None:
                    self._log.write(run.step, "goodput", run.goodput.report())
                self._speedometer.restart()
        return why

    def _begin(self, stack: ExitStack) -> Run[Params]:
        """What lives as long as ``stack`` is open."""
        watchdog = None if self.cfg.watchdog is None else self.cfg.watchdog.build()
        arrivals = Arrivals(on_arrival=None if watchdog is None else watchdog.arrived)
        stack.callback(arrivals.close)
        if watchdog is not None:
            watchdog.start()
            stack.callback(watchdog.close)
        goodput = Goodput()
        run = Run(
            batches=self._batches,
            partitioner=self._partitioner,
            compile=lambda batch, details: self._compile(run, batch, details=details),
            goodput=goodput,
            activity=Activity(goodput, watchdog),
            arrivals=arrivals,
            watchdog=watchdog,
            agree=Agreement(self._partitioner.replicated()),
            state=self.abstract_state(),
        )
        return run

    def _start(self, run: Run[Params]) -> None:
        """The newest snapshot, or the beginning; the sinks forget what came after."""
        snapshot = self._checkpoints.newest(run.state)
        memory: Memory = {}
        if snapshot is None:
            run.position = self._batches.get_state()
            run.state = self.init_state()
        else:
            run.step, run.state, run.position, memory = snapshot
            self._batches.set_state(run.position)
            run.take_over(memory, last_step=self._log.last_step())
        self._bad_steps.restore(memory.get("bad_steps"))
        if self._early_stop is not None:
            self._early_stop.memory = memory.get("early_stop", {})
        self._log.begin(-1 if snapshot is None else run.step)

    def _compile(
        self, run: Run[Params], batch: Mapping[str, jax.ShapeDtypeStruct], *, details: bool
    ) -> CompiledStep[Params]:
        with run.activity("compile", "compiling the step"), lookups() as found:
            program = self.compile(batch, details=details)
        cached = {"compile_cached": float(not found.misses)} if found.hits or found.misses else {}
        self._log.write(run.step, "speed", {"compile_seconds": program.seconds, **cached})
        if run.watchdog is not None:
            run.watchdog.runs(program.executable.as_text)
        return program

    def _spent(self, run: Run[Params]) -> Why | None:
        """Why no more steps are to be done, as far as it is the same for all processes and whenever it is asked."""
        if run.step >= self.cfg.num_steps:
            return "finished"
        if self._is_plateau():
            return "plateau"
        return self._budget.spent(run.step, run.position) if run.step else None

    def _has_details(self, step: int) -> bool:
        return is_due(step, self.cfg.details_every)

    def _is_logged(self, step: int) -> bool:
        return is_due(step, self.cfg.log_every) or self._has_details(step)

    def _is_plateau(self) -> bool:
        return self._early_stop is not None and self._early_stop.is_reached

    def _wished(self, run: Run[Params]) -> Why | None:
        """Why no more steps are wanted, by any process."""
        wish: Why | None = None
        if self._stop is not None and self._stop.should_stop(run.step):
            wish = "stopped"
        elif self._budget.is_late(run.seconds()):
            wish = "seconds"
        return _WISHES[run.agree(_WISHES.index(wish))]

    def _read(self, run: Run[Params], *, leaving: int) -> None:
        """Judge and write the numbers of all steps but the last ``leaving``; waits for the devices."""
        while (landed := run.land(leaving=leaving)) is not None:
            step, values = landed.step, landed.values
            verdict = self._bad_steps.judge(step, {name: values[name] for name in WATCHED if name in values})
            if verdict is not None:
                self._respond(verdict, landed)
            speed = self._speedometer.lap()
            if landed.is_written:
                details = {name: value for name, value in values.items() if name.startswith(DETAILS)}
                train = {name: value for name, value in values.items() if name not in details}
                self._log.report(step, "train", {**train, "num_targets": landed.num_targets})
                if details:
                    self._log.write(step, "details", details)
                self._log.write(step, "speed", speed)

    def _respond(self, verdict: Verdict, landed: Landed) -> None:
        """Tell of a bad step, and do what the policy says."""
        _LOG.warning("%s; %s%s", verdict.why, _RESPONSES[verdict.action], self._documents(landed.fed.before))
        if verdict.action == "rewind":
            raise _GoBackError(verdict, landed.fed.after)
        self._log.write(verdict.step, "events", {verdict.action: 1.0, **verdict.values})
        if verdict.action == "stop":
            raise verdict.error()

    def _documents(self, position: bytes) -> str:
        """What the batch after ``position`` is made of, for people."""
        if not isinstance(self._batches, SupportsOrigins):
            return ""
        lines = self._batches.origins(position)
        more = [f"and {len(lines) - _MOST_DOCUMENTS} more"] if len(lines) > _MOST_DOCUMENTS else []
        return "\n  ".join(["; its batch is", *lines[:_MOST_DOCUMENTS], *more])

    def _go_back(self, run: Run[Params], verdict: Verdict, position: bytes) -> Why | None:
        """To the newest checkpoint, or the beginning; the data goes on at ``position``."""
        with run.activity("rewind", f"going back from step {verdict.step}"):
            run.abandon()
            self._checkpoints.wait(run.step)
            run.state = self.abstract_state()  # so that the memory of the bad one is free
            snapshot = self._checkpoints.newest(run.state)
            memory: Memory = {}
            if snapshot is None:
                run.step, run.state = 0, self.init_state()
            else:
                run.step, run.state, _, memory = snapshot
            self._bad_steps.go_back(memory.get("bad_steps"))
            if self._early_stop is not None:
                self._early_stop.memory = memory.get("early_stop", {})
            run.position = position
            self._batches.set_state(position)
            lost = run.goodput.seconds().get("step", 0.0) - run.kept
            run.goodput.move(lost, origin="step", to="lost")
        event = {"rewind": 1.0, "from_step": float(verdict.step), "to_step": float(run.step), **verdict.values}
        self._log.go_back(run.step, event)
        has_data = run.feed()
        self._speedometer.restart()
        return None if has_data else "data"

    def _evaluate(self, run: Run[Params], names: Sequence[str]) -> None:
        """Run these evaluators."""
        for name in names:
            with run.activity("evaluation", f"evaluating {name!r} at step {run.step}"):
                values = self._evaluations.evaluate(name, run.state)
            self._log.report_evaluation(run.step, name, values)
            if self._early_stop is not None:
                self._early_stop.see(name, values)

    def _compare_copies(self, run: Run[Params]) -> None:
        with run.activity("check", f"comparing copies at step {run.step}"):
            found = find_corruption(run.state)
        if found:
            self._log.write(run.step, "events", {"corruption": float(len(found))})
            raise CorruptionError(run.step, found)

    def _save(self, run: Run[Params]) -> None:
        seconds = run.goodput.seconds()
        memory: Memory = {"saved_at": time.time(), "seconds": seconds, "bad_steps": self._bad_steps.memory}
        if self._early_stop is not None:
            memory["early_stop"] = self._early_stop.memory
        with run.activity("checkpoint", f"saving step {run.step}"):
            self._checkpoints.save(Snapshot(run.step, run.state, run.position, memory))
        run.kept = seconds.get("step", 0.0)


_RESPONSES = {
    "note": "training goes on",
    "skip": "training goes on without it",
    "rewind": "training goes back to the newest checkpoint, and on with the batch that follows",
    "stop": "training stops",
}


def _end(hook: SupportsStartAndEnd, run: Run[Params]) -> None:
    hook.on_end(run.step)


def _check(cfg: Trainer.Config, evaluators: Mapping[str, Evaluator], early_stop: EarlyStop | None) -> None:
    for name, value in (
        ("num_steps", cfg.num_steps),
        ("num_microbatches", cfg.num_microbatches),
        ("evaluate_every", cfg.evaluate_every),
        ("checkpoint_every", cfg.checkpoint_every),
        ("log_every", cfg.log_every),
        ("details_every", cfg.details_every),
        ("compare_copies_every", cfg.compare_copies_every),
    ):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    taken = sorted(_OWN_GROUPS & evaluators.keys())
    if taken:
        raise ValueError(
            f"an evaluator can't be called {taken[0]!r}: the trainer writes its own values under that name"
        )
    if early_stop is not None and early_stop.cfg.evaluator not in evaluators:
        raise ValueError(
            f"early stop watches the evaluator {early_stop.cfg.evaluator!r}; there are {sorted(evaluators)}"
        )
