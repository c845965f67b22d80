"""Pipeline schedules: their tables against the papers' formulas, what a table must satisfy, and where a plan keeps what."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TypeAlias, cast

import numpy as np
import pytest
from ax_layers import (
    Costs,
    Schedule,
    ScheduleError,
    Table,
    bubble,
    gpipe,
    late_weights,
    one_forward_one_backward,
    zero_bubble,
)
from ax_layers._pipeline_plan import Plan, Steps, plan

Sizes: TypeAlias = tuple[int, int, int]

ONE_CHUNK: list[Sizes] = [(stages, 1, number) for stages in (1, 2, 3, 5, 8) for number in (1, 2, 3, 5, 8, 19)]
CHUNKS: list[Sizes] = [
    (stages, chunks, stages * groups) for stages in (1, 2, 4) for chunks in (2, 3) for groups in (1, 2, 5)
]
SCHEDULES: dict[str, tuple[Schedule, list[Sizes]]] = {
    "gpipe": (gpipe, [*ONE_CHUNK, *CHUNKS]),
    "1f1b": (one_forward_one_backward, [*ONE_CHUNK, *CHUNKS]),
    "late weights": (late_weights, [*ONE_CHUNK, *CHUNKS]),
    "zero bubble": (zero_bubble, ONE_CHUNK),
}


def delayed(schedule: Schedule, seed: int) -> Schedule:
    """The same order with idle ticks in between, and stages that are late: another table that can be carried out."""

    def make(num_stages: int, num_chunks: int, num_microbatches: int, /) -> Table:
        table = schedule(num_stages, num_chunks, num_microbatches)
        rng = random.Random(seed)
        places = np.cumsum([rng.choice((1, 1, 3)) for _ in range(len(table.forward))]) - 1

        def spread(tasks: np.ndarray) -> np.ndarray:
            spread = np.full((places[-1] + 2 * len(tasks), num_stages), -1, np.int32)
            spread[places] = tasks
            return spread

        weights = None
        if table.weights is not None:  # they may wait, as long as they keep their order
            late = spread(table.weights)
            weights = np.roll(late, len(table.weights), axis=0)
        return replace(table, forward=spread(table.forward), backward=spread(table.backward), weights=weights)

    return make


@pytest.mark.parametrize("costs", [Costs(), Costs(1.0, 1.5, 0.5)])
def test_bubbles_of_gpipe_and_of_one_forward_one_backward(costs: Costs) -> None:
    for stages, chunks, number in [*ONE_CHUNK, *CHUNKS]:
        wanted = (stages - 1) / (chunks * number + stages - 1)
        for schedule in (gpipe, one_forward_one_backward):
            for lockstep in (False, True):
                waiting = bubble(schedule(stages, chunks, number), costs, lockstep=lockstep)
                assert waiting == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("lockstep", [False, True])
def test_bubble_of_late_weights(lockstep: bool) -> None:
    """All weights' gradients are out of the way of the stages' waiting for each other."""
    forward, backward, weights = costs = Costs(1.0, 2.0, 0.75)
    for stages, chunks, number in [*ONE_CHUNK, *CHUNKS]:
        waiting = (stages - 1) * (forward + backward)
        wanted = waiting / (chunks * number * (forward + backward + weights) + waiting)
        assert bubble(late_weights(stages, chunks, number), costs, lockstep=lockstep) == pytest.approx(
            wanted, abs=1e-12
        )


def test_bubble_of_zero_bubble() -> None:
    """That of the paper's ZB-H1, (P - 1) · (F + B - W), when all three are equal."""
    for stages, chunks, number in ONE_CHUNK:
        if number >= stages:
            waiting = bubble(zero_bubble(stages, chunks, number))
            assert waiting == pytest.approx((stages - 1) / (3 * number + stages - 1), abs=1e-12)
            assert waiting <= bubble(one_forward_one_backward(stages, chunks, number)) + 1e-12


@pytest.mark.parametrize(("stages", "number"), [(4, 16), (8, 9), (3, 2)])
def test_what_is_kept(stages: int, number: int) -> None:
    """How far forwards run ahead of backwards is what the docstrings promise."""

    def ahead(table: Table, stage: int) -> int:
        done = (table.forward[:, stage] >= 0).cumsum() - np.r_[0, (table.backward[:-1, stage] >= 0).cumsum()]
        return int(done.max())

    for stage in range(stages):
        assert ahead(gpipe(stages, 1, number), stage) == number
        assert ahead(one_forward_one_backward(stages, 1, number), stage) <= min(2 * (stages - 1 - stage) + 1, number)
        assert ahead(zero_bubble(stages, 1, number), stage) <= min(stages - stage, number)
    assert plan(late_weights(stages, 1, number), backward=True).num_rests <= stages
    made = plan(zero_bubble(stages, 1, number), backward=True)
    assert made.num_inputs <= stages
    assert made.num_rests <= 2 * stages
    assert plan(one_forward_one_backward(stages, 1, number), backward=True).num_inputs <= 2 * stages


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_task_reads_what_was_left_for_it(name: str, seed: int | None) -> None:
    schedule, all_sizes = SCHEDULES[name]
    for sizes in all_sizes:
        table = (schedule if seed is None else delayed(schedule, seed))(*sizes)
        everything = {(run, m) for run in range(sizes[0] * sizes[1]) for m in range(sizes[2])}
        done = carry_out(plan(table, backward=True), backward=True)
        assert done["forward"] == done["backward"] == everything
        assert done["weights"] == (everything if table.weights is not None else set())
        done = carry_out(plan(table, backward=False), backward=False)
        assert done["forward"] == everything
        assert not done["backward"]


def carry_out(made: Plan, *, backward: bool) -> dict[str, set[tuple[int, int]]]:
    """Run a plan with labels in the place of arrays, tick by tick, and check each that is read."""
    table, steps = made.table, made.steps
    stages, last = table.num_stages, table.num_stages * table.num_chunks - 1
    inputs, gradients, rests = (
        [[cast("object", None)] * number for _ in range(stages)]
        for number in (made.num_inputs, made.num_gradients, made.num_rests)
    )
    done: dict[str, set[tuple[int, int]]] = {"forward": set(), "backward": set(), "weights": set()}
    for tick in range(len(steps.forward)):
        step = [Steps[int](*(int(column[tick, stage]) for column in steps)) for stage in range(stages)]
        sent: list[tuple[object, object]] = []
        for stage, now in enumerate(step):
            made_here: list[object] = [None, None]
            for kind, number in (("forward", now.forward), ("backward", now.backward), ("weights", now.weights)):
                if number < 0:
                    continue
                chunk, microbatch = divmod(number, table.num_microbatches)
                run = chunk * stages + stage
                task = (run, microbatch)
                assert task not in done[kind]
                done[kind].add(task)
                if kind == "weights":
                    assert rests[stage][now.weights_rest] == task
                    continue
                slot = now.forward_input if kind == "forward" else now.backward_input
                assert (slot < 0) == (run == 0)
                assert run == 0 or inputs[stage][slot] == task
                if kind == "forward":
                    made_here[0] = (run + 1, microbatch)
                    assert (now.loss_gradient >= 0) == (run == last and backward)
                    if now.loss_gradient >= 0:
                        gradients[stage][now.loss_gradient] = task
                else:
                    assert gradients[stage][now.backward_gradient] == task
                    made_here[1] = (run - 1, microbatch)
                    if now.backward_rest >= 0:
                        rests[stage][now.backward_rest] = task
            sent.append((made_here[0], made_here[1]))
        for stage, now in enumerate(step):
            if now.arriving_input >= 0:
                inputs[stage][now.arriving_input] = sent[stage - 1][0]
            if now.arriving_gradient >= 0:
                gradients[stage][now.arriving_gradient] = sent[(stage + 1) % stages][1]
    return done


def at(*ticks: int) -> np.ndarray:
    """The one microbatch of one chunk, at these ticks of the stages."""
    return np.where(np.arange(4)[:, None] == np.asarray(ticks)[None], 0, -1).astype(np.int32)


def test_a_table_that_cannot_be_carried_out() -> None:
    table = Table(2, 1, 1, at(0, 1), at(2, 1), at(3, 1))
    with pytest.raises(ScheduleError, match="forward of chunk 0, stage 1, microbatch 0 comes before its input"):
        replace(table, forward=at(1, 1))
    with pytest.raises(ScheduleError, match="backward of chunk 0, stage 1, microbatch 0 comes before its forward"):
        replace(table, backward=at(2, 0))
    with pytest.raises(ScheduleError, match="backward of chunk 0, stage 0, microbatch 0 comes before its gradient"):
        replace(table, backward=at(2, 2))
    with pytest.raises(ScheduleError, match="stage 0, microbatch 0 comes before its backward"):
        replace(table, weights=at(1, 1))
    with pytest.raises(
        ScheduleError, match="1 microbatches through 1 chunks at each of 2 stages are 2 tasks, and there are 1"
    ):
        replace(table, forward=at(0, -1))
    with pytest.raises(ScheduleError, match="stage 0 does microbatch 0 of chunk 0 twice"):
        replace(table, forward=np.zeros((4, 2), np.int32))


def test_sizes_that_a_schedule_is_not_made_for() -> None:
    with pytest.raises(ScheduleError, match="groups of 4, one for each stage; 6 of them"):
        one_forward_one_backward(4, 2, 6)
    with pytest.raises(ScheduleError, match="one chunk a stage, got 2"):
        zero_bubble(4, 2, 8)
