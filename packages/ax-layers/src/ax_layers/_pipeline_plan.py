"""Where a pipeline keeps what: each tick's tasks with the places of their inputs and results.

What a stage is sent waits in one of a few slots until it was read for the last time. A table is known before anything runs, so
slots are given out here, as registers are by a compiler, and there are no more of them than are in use at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from ._schedules import Table, Tasks, Ticks

T = TypeVar("T")
Task = tuple[int, int, int]


class Steps(NamedTuple, Generic[T]):
    """What a stage does in a tick, one field a number; -1 is nothing, and the model's own input for an input."""

    forward: T
    forward_input: T
    loss_gradient: T  # where the last run's forward leaves the gradient of its output
    backward: T
    backward_input: T
    backward_gradient: T
    backward_rest: T  # where it leaves what the weights' gradients need
    weights: T
    weights_rest: T
    arriving_input: T
    arriving_gradient: T


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps, each field ``[num_ticks, num_stages]``, and how many slots each kind needs."""

    table: Table
    steps: Steps[Tasks]
    num_inputs: int
    num_gradients: int
    num_rests: int


def plan(table: Table, /, *, backward: bool) -> Plan:
    """The plan for a table, or for its forwards alone."""
    num_stages, last = table.num_stages, table.num_stages * table.num_chunks - 1
    forward = table.ticks(table.forward)
    backwards = table.ticks(table.backward) if backward else {}
    weights = {} if table.weights is None or not backward else table.ticks(table.weights)
    num_ticks = 1 + max(max(ticks.values()) for ticks in (forward, backwards, weights) if ticks)

    def run_of(task: Task) -> int:
        return task[0] * num_stages + task[1]

    def beside(task: Task, by: int) -> Task:
        chunk, stage = divmod(run_of(task) + by, num_stages)
        return chunk, stage, task[2]

    # Within a tick forwards come before backwards, these before weights, and what neighbours send arrives at the end.
    read_by_weights, at_the_end = 0.25, 0.5
    read = backwards if backward else forward
    inputs = _slots(
        num_stages,
        {task: (forward[beside(task, -1)] + at_the_end, read[task]) for task in forward if run_of(task) > 0},
    )
    gradients = _slots(
        num_stages,
        {
            task: (backwards[beside(task, 1)] + at_the_end if run_of(task) < last else forward[task] - 0.5, tick)
            for task, tick in backwards.items()
        },
    )
    rests = _slots(num_stages, {task: (backwards[task], tick + read_by_weights) for task, tick in weights.items()})

    def column(ticks: Ticks, value: Callable[[Task], int]) -> Tasks:
        made = np.full((num_ticks, num_stages), -1, np.int32)
        for task, tick in ticks.items():
            made[tick, task[1]] = value(task)
        return made

    def number(task: Task) -> int:
        return task[0] * table.num_microbatches + task[2]

    def slot(slots: dict[Task, int]) -> Callable[[Task], int]:
        return lambda task: slots.get(task, -1)

    steps = Steps(
        forward=column(forward, number),
        forward_input=column(forward, slot(inputs)),
        loss_gradient=column({task: tick for task, tick in forward.items() if run_of(task) == last}, slot(gradients)),
        backward=column(backwards, number),
        backward_input=column(backwards, slot(inputs)),
        backward_gradient=column(backwards, slot(gradients)),
        backward_rest=column(backwards, slot(rests)),
        weights=column(weights, number),
        weights_rest=column(weights, slot(rests)),
        arriving_input=column({task: forward[beside(task, -1)] for task in inputs}, slot(inputs)),
        arriving_gradient=column(
            {task: backwards[beside(task, 1)] for task in gradients if run_of(task) < last}, slot(gradients)
        ),
    )
    return Plan(table, steps, *(1 + max(slots.values(), default=-1) for slots in (inputs, gradients, rests)))


def _slots(num_stages: int, uses: dict[Task, tuple[float, float]]) -> dict[Task, int]:
    """A slot for each task's value, from when it is written until it is read for the last time; stages have their own."""
    slots: dict[Task, int] = {}
    for stage in range(num_stages):
        free_from: list[float] = []
        for task, (written, read) in sorted(uses.items(), key=lambda use: use[1]):
            if task[1] != stage:
                continue
            free = [slot for slot, since in enumerate(free_from) if since <= written]
            slot = free[0] if free else len(free_from)
            free_from[slot : slot + 1] = [read]
            slots[task] = slot
    return slots
