"""The account of a run's time, on a clock that the test turns."""

import random
from contextlib import ExitStack

import pytest
from ax_trainer._goodput import Cause, Goodput


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_devices_do_hides_what_the_host_waits_for() -> None:
    clock = Clock()
    account = Goodput(clock=clock)
    with account.spending("start"):
        clock.now += 5
    with account.spending("input"):
        clock.now += 3  # the first batch: nothing hides it
    dispatched = clock.now
    clock.now += 1
    with account.spending("input"):
        clock.now += 10  # of which the devices work the first two seconds
    account.worked(dispatched, dispatched + 3)
    account.worked(clock.now, clock.now + 2)
    clock.now += 4
    assert account.seconds() == {"start": 5, "input": 3 + 8, "step": 3 + 2, "other": 2}
    assert account.report()["share"] == 5 / 23
    assert account.report()["seconds"] == 23


def test_an_inner_cause_goes_before_an_outer_one() -> None:
    clock = Clock()
    account = Goodput(clock=clock)
    with account.spending("rewind"):
        clock.now += 1
        with account.spending("input"):
            clock.now += 2
        clock.now += 4
    assert account.seconds() == {"rewind": 5, "input": 2}


def test_steps_that_overlap_are_counted_once() -> None:
    clock = Clock()
    account = Goodput(clock=clock)
    account.worked(100, 103)
    account.worked(101, 105)  # dispatched while the one before ran
    clock.now = 106
    assert account.seconds() == {"step": 5, "other": 1}


def test_what_was_productive_may_turn_out_to_be_lost() -> None:
    clock = Clock()
    account = Goodput(clock=clock)
    account.carry({"step": 7.0, "down": 1.0})
    account.worked(100, 102)
    clock.now = 102
    account.move(2, origin="step", to="lost")
    assert account.seconds() == {"step": 7, "down": 1, "lost": 2}
    account.move(50, origin="down", to="lost")
    assert account.seconds() == {"step": 7, "down": 0, "lost": 3}


@pytest.mark.parametrize("seed", range(20))
def test_the_seconds_of_all_causes_are_those_of_the_clock(seed: int) -> None:
    chance, clock = random.Random(seed), Clock()
    account = Goodput(clock=clock)
    causes: list[Cause] = ["input", "evaluation", "checkpoint", "compile"]
    busy_until, flying = clock.now, []
    for _ in range(50):
        with ExitStack() as stack:
            for _ in range(chance.randrange(3)):
                stack.enter_context(account.spending(chance.choice(causes)))
                clock.now += chance.random()
        if chance.random() < 0.6:
            busy_until = max(busy_until, clock.now) + chance.random() * 2
            flying.append((clock.now, busy_until))
        while flying and flying[0][1] <= clock.now:
            account.worked(*flying.pop(0))
    clock.now = max(clock.now, busy_until)
    for step in flying:
        account.worked(*step)
    seconds = account.seconds()
    assert sum(seconds.values()) == pytest.approx(clock.now - 100.0)
    assert all(value >= 0 for value in seconds.values())
