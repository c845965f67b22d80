"""Where a run stands, and its steps on their way through the machine.

A step is fed (its batch is sent to the devices), dispatched (the devices are told to compute it) and landed (its numbers are read). The
loop decides when; a step is dispatched and the next one fed before the one before it is landed, so that devices have always work.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

import jax

from ._activity import Activity
from ._agreement import Agreement
from ._arrivals import Arrivals
from ._checkpoints import Memory
from ._goodput import Goodput
from ._logbook import fetch
from ._state import TrainState
from ._step import CompiledStep, describe
from ._watchdog import Watchdog
from .protocols import Batch, BatchSource, Metrics, Params, Partitioner


class Fed(NamedTuple):
    """A batch on the devices, and where the data stood before and after it."""

    batch: Batch
    before: bytes
    after: bytes


class Dispatched(NamedTuple):
    """A step that the devices are at work on."""

    step: int
    fed: Fed
    metrics: Metrics


class Landed(NamedTuple):
    """A step's numbers."""

    step: int
    fed: Fed
    values: Mapping[str, float]
    num_targets: float
    is_written: bool
    """Whether they go to the sinks; if not, there are only those that are judged."""


class _Awaited(NamedTuple):
    dispatched: Dispatched
    is_written: bool


@dataclass
class Run(Generic[Params]):
    """One run of a trainer."""

    batches: BatchSource
    partitioner: Partitioner
    compile: Callable[[Mapping[str, jax.ShapeDtypeStruct], bool], CompiledStep[Params]]
    """Makes the step for batches so described, with details if so told."""
    goodput: Goodput
    activity: Activity
    arrivals: Arrivals
    watchdog: Watchdog | None
    agree: Agreement
    state: TrainState[Params]
    """Before the run starts, only its description."""
    step: int = 0
    position: bytes = b""
    """Where the data stood after the batch of this step."""
    fed: Fed | None = None
    """The batch of the next step."""
    begun: float = field(default_factory=time.monotonic)
    """When this process began with the run."""
    seconds_before: float = 0.0
    """What earlier processes took."""
    kept: float = 0.0
    """Productive seconds up to the newest checkpoint."""
    _programs: dict[bool, CompiledStep[Params]] = field(default_factory=dict)
    _awaited: deque[_Awaited] = field(default_factory=deque)

    def take_over(self, memory: Memory, *, last_step: int | None) -> None:
        """Continue the account of earlier processes, which came to ``last_step`` after what they saved.

        The time since then is charged to steps that have to be done again, as many as they are known to be, and to none.
        """
        totals = memory.get("seconds", {})
        self.goodput.carry(totals)
        self.kept, self.seconds_before = totals.get("step", 0.0), sum(totals.values()) - totals.get("down", 0.0)
        now = time.time() - (time.monotonic() - self.begun)
        gap = max(now - memory.get("saved_at", now), 0.0)
        lost = min(max((last_step or 0) - self.step, 0) * self.kept / max(self.step, 1), gap)
        self.goodput.charge("lost", lost)
        self.goodput.charge("down", gap - lost)

    def seconds(self) -> float:
        """How long the run has taken, over all of its processes."""
        return self.seconds_before + time.monotonic() - self.begun

    def feed(self) -> bool:
        """Put the next batch on its way to the devices; whether there is one."""
        with self.activity(
            "input", f"waiting for the batch of step {self.step + 1} from {type(self.batches).__name__}"
        ):
            batch = next(self.batches, None)
        if batch is None:
            return False
        self.fed = Fed(self.partitioner.put(batch), self.position, self.batches.get_state())
        return True

    def program(self, *, details: bool) -> CompiledStep[Params]:
        """The step, without or with details; compiled when first asked for."""
        if details not in self._programs:
            assert self.fed is not None
            self._programs[details] = self.compile(describe(self.fed.batch), details)
        return self._programs[details]

    def dispatch(self, *, details: bool) -> Dispatched:
        """Give the step whose batch is fed to the devices."""
        program, fed = self.program(details=details), self.fed
        assert fed is not None
        begun = time.monotonic()
        with jax.profiler.StepTraceAnnotation("train", step_num=self.step + 1):
            self.state, metrics = program(self.state, fed.batch)
        self.step, self.position, self.fed = self.step + 1, fed.after, None
        self.arrivals.expect(self.step, begun, metrics["loss"][0])
        return Dispatched(self.step, fed, metrics)

    def await_numbers(self, dispatched: Dispatched, *, only: tuple[str, ...] | None) -> None:
        """Ask the devices for a step's numbers: all, which are to be written, or ``only`` those so called."""
        metrics = {name: pair for name, pair in dispatched.metrics.items() if only is None or name in only}
        for leaf in jax.tree.leaves(metrics):
            leaf.copy_to_host_async()
        self._awaited.append(_Awaited(dispatched._replace(metrics=metrics), only is None))

    def land(self, *, leaving: int) -> Landed | None:
        """The numbers of the oldest step that is awaited, unless only the last ``leaving`` are; waits for the devices."""
        if len(self._awaited) <= leaving:
            return None
        (step, fed, metrics), is_written = self._awaited.popleft()
        with self.activity("other", f"waiting for step {step} on the devices"):
            fetched = fetch(metrics)
            self._account()
        values = {name: mean for name, (mean, _) in fetched.items()}
        return Landed(step, fed, values, fetched["loss"][1], is_written)

    def abandon(self) -> None:
        """Wait for the steps that are on their way, and forget them."""
        while self._awaited:
            self._awaited.popleft()
            self._account()

    def _account(self) -> None:
        arrival = self.arrivals.next()
        self.goodput.worked(arrival.dispatched, arrival.done)
