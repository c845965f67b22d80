"""The watchdog: when it barks, on a clock that the test turns; and what it says of a process that hangs."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from ax_trainer import Watchdog
from ax_trainer._arrivals import Arrival
from ax_trainer._watchdog import collectives
from jax.sharding import NamedSharding, PartitionSpec


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def watched(clock: Clock, **changes: object) -> Watchdog:
    cfg = Watchdog.Config(factor=10.0, least_seconds=1.0, allowance_seconds=100.0)
    return Watchdog(cfg.clone(**changes), clock=clock)


def do_steps(dog: Watchdog, clock: Clock, number: int, *, seconds: float, first: int = 1) -> None:
    for step in range(first, first + number):
        dispatched = clock.now
        clock.now += seconds
        dog.arrived(Arrival(step, dispatched, clock.now))


def test_a_step_may_take_so_many_times_the_median() -> None:
    clock = Clock()
    dog = watched(clock)
    do_steps(dog, clock, 5, seconds=2.0)
    with dog.doing("waiting for the batch of step 7 from Slow"):
        clock.now += 19.9
        assert dog.overdue() is None
        clock.now += 0.2
        assert dog.overdue() == (
            "no progress for 20.1 s (the deadline is 20 s): waiting for the batch of step 7 from Slow; "
            "the last step that was done is 5"
        )
        clock.now += 19.8
        assert dog.overdue() is None  # it has just been said
        clock.now += 0.3
        assert "for 40.2 s" in str(dog.overdue())
    do_steps(dog, clock, 1, seconds=0.5, first=6)
    clock.now += 19.9
    assert dog.overdue() is None


def test_dispatching_is_no_sign_of_life() -> None:
    clock = Clock()
    dog = watched(clock, deadline_seconds=3.0)
    for _ in range(4):
        with dog.doing("waiting for a batch"):
            clock.now += 1
    assert dog.overdue() is not None


def test_what_is_no_step_has_its_own_allowance() -> None:
    clock = Clock()
    dog = watched(clock, deadline_seconds=3.0)
    do_steps(dog, clock, 1, seconds=1.0)
    with dog.doing("saving step 1", allowed=True):
        clock.now += 99
        assert dog.overdue() is None
        clock.now += 2
        assert "no progress for 101 s (the deadline is 100 s): saving step 1;" in str(dog.overdue())
    clock.now += 2.5
    assert dog.overdue() is None  # steps begin anew


def test_the_first_step_may_take_its_time() -> None:
    clock = Clock()
    dog = watched(clock)
    with dog.doing("compiling the step", allowed=True):
        clock.now += 50
    clock.now += 99
    assert dog.overdue() is None
    clock.now += 2
    assert "no step was done yet" in str(dog.overdue())


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="factor must be positive, got 0"):
        watched(Clock(), factor=0.0)


def test_the_collectives_of_a_program_are_told() -> None:
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec("x"))

    def normalised(x: jax.Array) -> jax.Array:
        return x / jnp.sum(x)

    described = jax.ShapeDtypeStruct((16,), jnp.float32, sharding=split)
    program = jax.jit(normalised, out_shardings=split).lower(described).compile()
    (line,) = collectives(program.as_text() or "")
    assert line.startswith("1 × all-reduce f32[] of jit(normalised)/")


HANGING = """
import sys, time
import optax
from ax_config import config_for
from ax_trainer import Trainer, Watchdog
from ax_trainer.testing import BigramModel, MemoryBatches, SingleDevice, bigram_batches

class Worker(MemoryBatches):
    def __next__(self):
        if self._position == 6:
            self.wait_for_a_worker_that_is_gone()
        return super().__next__()

    def wait_for_a_worker_that_is_gone(self):
        time.sleep(60)

Trainer(
    Trainer.Config(
        num_steps=20,
        optimizer=config_for(optax.sgd)(learning_rate=0.1),
        watchdog=Watchdog.Config(deadline_seconds=3.0, action="exit", exit_code=75, file=sys.argv[1]),
    ),
    model=BigramModel(), partitioner=SingleDevice(), batches=Worker(bigram_batches(7)),
).run()
"""


def test_a_process_that_hangs_says_where_and_ends(tmp_path: Path) -> None:
    stacks = tmp_path / "stacks.txt"
    ended = subprocess.run([sys.executable, "-c", HANGING, str(stacks)], capture_output=True, text=True, timeout=50)
    assert ended.returncode == 75, ended.stderr
    for said in (ended.stderr, stacks.read_text()):
        assert "waiting for the batch of step 7 from Worker; the last step that was done is 6" in said
        assert "in wait_for_a_worker_that_is_gone" in said
