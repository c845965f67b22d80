"""kill -9 at any moment, then the same command: bit for bit the run that was never interrupted."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command import Ax
from history import losses, state_digest, steps

NUM_STEPS = 300
OPTIONS = ("--steps", str(NUM_STEPS), "--set", "checkpoints.keep_every=7")
SEED = random.SystemRandom().randrange(1 << 30)


def last_step(run: Path) -> int:
    file = run / "metrics.jsonl"
    return max((step for step, _ in losses(run)), default=0) if file.exists() else 0


def in_start_up(_run: Path, _since: int) -> bool:
    return True


def in_a_step(run: Path, since: int) -> bool:
    return last_step(run) > since


def in_a_save(run: Path, since: int) -> bool:
    return last_step(run) > since and any((run / "checkpoints").glob("saving-*"))


def in_an_evaluation(run: Path, since: int) -> bool:
    """Training has reached a step at which it evaluates, and the result isn't there yet."""
    if last_step(run) <= since:
        return False
    lines = losses(run)
    step = max(step for step, _ in lines)
    return step % 10 == 0 and (step, "train") in lines and (step, "validation") not in lines


MOMENTS: Sequence[Callable[[Path, int], bool]] = (
    *(in_start_up, in_a_step, in_a_save, in_an_evaluation),
    *(in_a_step, in_a_save, in_an_evaluation, in_a_save, in_start_up, in_a_step),
)


def kill_at(
    process: subprocess.Popen[str], run: Path, moment: Callable[[Path, int], bool], dice: random.Random
) -> bool:
    """Kill when the moment has come, and a random little while later; False if the run ended before."""
    since = last_step(run) + dice.randrange(1, 12)
    while not moment(run, since):
        if process.poll() is not None:
            return False
    time.sleep(dice.uniform(0, 3) if moment is in_start_up else dice.uniform(0, 0.004))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return True


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, small: Sequence[str]) -> Path:
    """The run that is never interrupted."""
    ax = Ax(tmp_path_factory.mktemp("reference"))
    ax.run(*small, *OPTIONS)
    return ax.folder / "runs" / "tiny"


def test_a_run_that_is_killed_ten_times_equals_one_that_never_was(
    ax: Ax, small: Sequence[str], reference: Path
) -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    run = ax.folder / "runs" / "tiny"
    expected = losses(reference)
    kills = 0
    for moment in MOMENTS:
        if not kill_at(ax.start(*small, *OPTIONS), run, moment, dice):
            break
        kills += 1
        written, kept = losses(run) if run.exists() and (run / "metrics.jsonl").exists() else {}, steps(run)
        print(f"kill {kills} {moment.__name__}: {len(written)} lines, checkpoints {kept[-1:]}")
        wrong = [line for line, values in written.items() if expected[line] != values]
        assert not wrong, (
            f"after kill {kills}, {moment.__name__}: {wrong[0]} is {written[wrong[0]]}, not {expected[wrong[0]]}"
        )
        if kept:
            assert state_digest(run, kept[-1]) == state_digest(reference, kept[-1]), (
                f"{moment.__name__}: state {kept[-1]}"
            )
    assert kills == len(MOMENTS), f"the run ended after {kills} kills; give it more steps"
    ax.run(*small, *OPTIONS)
    assert losses(run) == expected
    assert list(losses(run)) == list(expected)
    assert steps(run)[-1] == NUM_STEPS
    assert state_digest(run, NUM_STEPS) == state_digest(reference, NUM_STEPS)
