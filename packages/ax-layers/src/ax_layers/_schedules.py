"""Who does what when in a pipeline: schedules as tables, and the clock that measures them.

The layers are cut into ``num_stages · num_chunks`` runs. Stage ``s`` holds ``num_chunks`` of them: its chunk ``c`` is run
``c · num_stages + s``, so that with one chunk the stages hold consecutive runs, and with several the microbatches go round.
In each tick a stage does at most one *forward* of a chunk for a microbatch, one *backward*, and one *weights*, in this order;
then neighbours exchange activations and gradients. Where a table has ``weights``, backward gives the gradient of a run's input
only, and weights that of its parameters, which nobody waits for; else backward gives both.

A schedule is a function that makes the table. What takes a table relies on nothing else, so another function is another schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Tasks: TypeAlias = npt.NDArray[np.int32]
"""``[num_ticks, num_stages]``: ``chunk · num_microbatches + microbatch``, or -1 for nothing."""

Ticks: TypeAlias = "dict[tuple[int, int, int], int]"
"""The tick of each (chunk, stage, microbatch)."""


class ScheduleError(ValueError):
    """A table that can't be carried out, or sizes that a schedule isn't made for."""


@dataclass(frozen=True, eq=False)
class Table:
    """What every stage does in every tick.

    Raises:
        ScheduleError: A task is missing or done twice, or something is used before it is there.
    """

    num_stages: int
    num_chunks: int
    num_microbatches: int
    forward: Tasks
    backward: Tasks
    weights: Tasks | None = None

    def __post_init__(self) -> None:
        forward, backward = self.ticks(self.forward), self.ticks(self.backward)
        weights = backward if self.weights is None else self.ticks(self.weights)
        last = self.num_chunks * self.num_stages - 1
        for task in forward:
            chunk, stage, microbatch = task
            run = chunk * self.num_stages + stage
            before, after = (
                (beside // self.num_stages, beside % self.num_stages, microbatch) for beside in (run - 1, run + 1)
            )
            what = f"of chunk {chunk}, stage {stage}, microbatch {microbatch}"
            if run > 0 and forward[before] >= forward[task]:
                raise ScheduleError(f"the forward {what} comes before its input")
            if forward[task] > backward[task]:
                raise ScheduleError(f"the backward {what} comes before its forward")
            if run < last and backward[after] >= backward[task]:
                raise ScheduleError(f"the backward {what} comes before its gradient")
            if backward[task] > weights[task]:
                raise ScheduleError(f"the weights' gradient {what} comes before its backward")

    def ticks(self, tasks: Tasks, /) -> Ticks:
        """The tick of each (chunk, stage, microbatch) in ``forward``, ``backward`` or ``weights``."""
        found: Ticks = {}
        for tick, stage in np.argwhere(tasks >= 0).tolist():
            chunk, microbatch = divmod(int(tasks[tick, stage]), self.num_microbatches)
            if (chunk, stage, microbatch) in found or chunk >= self.num_chunks:
                raise ScheduleError(
                    f"stage {stage} does microbatch {microbatch} of chunk {chunk} twice, or has no such chunk"
                )
            found[chunk, stage, microbatch] = tick
        if len(found) != self.num_stages * self.num_chunks * self.num_microbatches:
            raise ScheduleError(
                f"{self.num_microbatches} microbatches through {self.num_chunks} chunks at each of {self.num_stages} stages are "
                f"{self.num_stages * self.num_chunks * self.num_microbatches} tasks, and there are {len(found)}"
            )
        return found


Schedule: TypeAlias = Callable[[int, int, int], Table]
"""``(num_stages, num_chunks, num_microbatches) -> Table``."""


def gpipe(num_stages: int, num_chunks: int, num_microbatches: int, /) -> Table:
    """All forwards, then all backwards (Huang et al. 2018, arXiv:1811.06965); stages keep every microbatch.

    The bubble is ``(P - 1) / (V · M + P - 1)`` for ``P`` stages, ``V`` chunks and ``M`` microbatches.

    Raises:
        ScheduleError: There are several chunks, and the microbatches aren't a multiple of the stages.
    """
    forward = _in_turn(num_stages, num_chunks, num_microbatches)
    last = 2 * max(forward.values()) + 1
    backward = {task: last - tick for task, tick in forward.items()}
    return _table(num_stages, num_chunks, num_microbatches, forward, backward)


def one_forward_one_backward(num_stages: int, num_chunks: int, num_microbatches: int, /) -> Table:
    """Backward as soon as can be (PipeDream-Flush, Narayanan et al. 2020, arXiv:2006.09503); with several chunks interleaved
    (Megatron-LM, Narayanan et al. 2021, arXiv:2104.04473).

    The bubble is GPipe's, ``(P - 1) / (V · M + P - 1)``. With one chunk, stage ``i`` keeps at most ``2 (P - 1 - i) + 1``
    microbatches: a forward and a backward share a tick, so it runs ahead by twice the way to the last stage.

    Raises:
        ScheduleError: There are several chunks, and the microbatches aren't a multiple of the stages.
    """
    forward = _in_turn(num_stages, num_chunks, num_microbatches)
    # The way back is the way there, mirrored: it begins at the last stage with the end of the first microbatch's way.
    start = num_stages * num_chunks - 1
    backward = {
        (num_chunks - 1 - chunk, num_stages - 1 - stage, microbatch): start + tick
        for (chunk, stage, microbatch), tick in forward.items()
    }
    return _table(num_stages, num_chunks, num_microbatches, forward, backward)


def late_weights(num_stages: int, num_chunks: int, num_microbatches: int, /) -> Table:
    """``one_forward_one_backward`` whose weights' gradients wait for the first stage's, so that no stage waits for them.

    With times ``F``, ``B`` and ``W`` a stage waits for ``(P - 1) (F + B)`` of ``V M (F + B + W) + (P - 1) (F + B)``, in lockstep too. Stage
    ``i`` keeps what the weights' gradients need of ``i + 1`` microbatches.

    Raises:
        ScheduleError: There are several chunks, and the microbatches aren't a multiple of the stages.
    """
    table = one_forward_one_backward(num_stages, num_chunks, num_microbatches)
    weights = np.full_like(table.backward, -1)
    for stage in range(num_stages):  # the last ticks' backwards are the first stage's
        weights[stage:, stage] = table.backward[: len(weights) - stage, stage]
    return replace(table, weights=weights)


def zero_bubble(num_stages: int, num_chunks: int, num_microbatches: int, /) -> Table:
    """ZB-H1 (Qi et al. 2023, arXiv:2401.10241): the weights' gradients fill the ticks in which a stage would wait.

    One task a tick, another one at every stage: not for lockstep. When all three take the same time ``F``, they take ``3 M + P - 1`` ticks: the bubble is
    ``(P - 1) / (3 M + P - 1)`` where ``M ≥ P``. Stage ``i`` keeps the inputs of at most ``P - i`` microbatches, and inputs and what
    the weights' gradients need of at most ``2 P``.

    Raises:
        ScheduleError: There are several chunks.
    """
    if num_chunks != 1:
        raise ScheduleError(f"zero_bubble is for one chunk a stage, got {num_chunks}")
    forward: Ticks = {}
    backward: Ticks = {}
    weights: Ticks = {}
    stages = range(num_stages)
    num_forward, num_backward, num_weights = ([0] * num_stages for _ in range(3))

    def done(ticks: Ticks, stage: int, microbatch: int, now: int) -> bool:
        return not 0 <= stage < num_stages or ticks.get((0, stage, microbatch), now) < now

    tick = 0
    while len(weights) < num_stages * num_microbatches:
        for i in stages:
            f, b, w = num_forward[i], num_backward[i], num_weights[i]
            if b < f and done(forward, i, b, tick) and done(backward, i + 1, b, tick):
                backward[0, i, b] = tick
                num_backward[i] += 1
            elif (
                f < num_microbatches
                and f - b < num_stages - i
                and f - w < 2 * num_stages
                and done(forward, i - 1, f, tick)
            ):
                forward[0, i, f] = tick
                num_forward[i] += 1
            elif w < b:
                weights[0, i, w] = tick
                num_weights[i] += 1
        tick += 1
    return _table(num_stages, num_chunks, num_microbatches, forward, backward, weights)


class Costs(NamedTuple):
    """The time that each task takes for a chunk; without ``weights`` of its own, a backward takes that time too."""

    forward: float = 1.0
    backward: float = 1.0
    weights: float = 1.0


def bubble(table: Table, costs: Costs = Costs(), /, *, lockstep: bool = False) -> float:  # noqa: B008  # immutable
    """The part of the time in which a stage waits, or in ``lockstep`` does what is thrown away.

    A tick takes as long as the stage that has most to do in it; in lockstep, as long as all that any stage has to do.
    """
    kinds = [(table.forward >= 0, costs.forward)]
    if table.weights is None:
        kinds.append((table.backward >= 0, costs.backward + costs.weights))
    else:
        kinds += [(table.backward >= 0, costs.backward), (table.weights >= 0, costs.weights)]
    busy = np.sum([tasks * cost for tasks, cost in kinds], axis=0)
    ticks = np.sum([tasks.any(axis=1) * cost for tasks, cost in kinds], axis=0) if lockstep else busy.max(axis=1)
    return float(1 - busy.sum() / (ticks.sum() * table.num_stages))


def _in_turn(num_stages: int, num_chunks: int, num_microbatches: int) -> Ticks:
    """Forwards without a pause: as many microbatches as there are stages go through all chunks, then the next ones."""
    if num_chunks > 1 and num_microbatches % num_stages:
        raise ScheduleError(
            f"with several chunks a stage, microbatches go round in groups of {num_stages}, one for each stage; "
            f"{num_microbatches} of them don't divide into such groups"
        )

    def order() -> Iterator[tuple[int, int]]:
        for first in range(0, num_microbatches, num_stages):
            for chunk in range(num_chunks):
                for microbatch in range(first, min(first + num_stages, num_microbatches)):
                    yield chunk, microbatch

    return {
        (chunk, stage, microbatch): place + stage
        for place, (chunk, microbatch) in enumerate(order())
        for stage in range(num_stages)
    }


def _table(
    num_stages: int,
    num_chunks: int,
    num_microbatches: int,
    forward: Ticks,
    backward: Ticks,
    weights: Ticks | None = None,
) -> Table:
    num_ticks = 1 + max(max(ticks.values()) for ticks in (forward, backward, weights or forward))

    def tasks(ticks: Ticks) -> Tasks:
        table = np.full((num_ticks, num_stages), -1, np.int32)
        for (chunk, stage, microbatch), tick in ticks.items():
            table[tick, stage] = chunk * num_microbatches + microbatch
        return table

    split = None if weights is None else tasks(weights)
    return Table(num_stages, num_chunks, num_microbatches, tasks(forward), tasks(backward), split)
