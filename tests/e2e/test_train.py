"""The main job, small: training, resuming, stopping, and text at the end."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Sequence

import pytest
from command import Ax
from history import losses, state_digest, steps


def test_training_learns_and_tells_about_it(ax: Ax, small: Sequence[str]) -> None:
    result = ax.run(*small)
    run = ax.folder / "runs" / "tiny"
    lines = losses(run)
    assert [step for step, name in lines if name == "train"] == list(range(1, 41))
    assert [step for step, name in lines if name == "validation"] == [10, 20, 30, 40]
    assert lines[40, "train"]["loss"] < lines[1, "train"]["loss"] - 0.5
    first = lines[1, "train"]["loss"]
    assert first == pytest.approx(math.log(257), rel=0.1)  # an untrained model knows nothing
    validation = lines[40, "validation"]
    assert 1.0 < validation["bits_per_byte"] < 8.0
    assert steps(run) == [28, 35, 40]
    for said in ("parameters", "MFU", "tokens/s", "left", "validation: ", "checkpoint", "ax generate", "a sample"):
        assert said in result.stdout, f"{said!r} is not in the output:\n{result.stdout}"
    assert not result.stderr
    assert any(run.glob("events.out.tfevents*"))

    again = ax.run(*small)
    assert "nothing left to do" in again.stdout
    assert losses(run) == lines

    longer = ax.run(*small, "--steps", "50")
    assert "resume  from the checkpoint of step 40" in longer.stdout
    assert max(step for step, _ in losses(run)) == 50


def test_generation_is_repeatable_and_follows_the_options(ax: Ax, small: Sequence[str]) -> None:
    ax.run(*small, "--run", "here")
    ask = ("generate", "here", "--prompt", "import ", "--tokens", "40")
    one, two = ax.run(*ask).stdout, ax.run(*ask).stdout
    assert one == two
    assert one.startswith("import ")
    assert ax.run(*ask, "--seed", "1").stdout != one
    assert ax.run(*ask, "--temperature", "0").stdout == ax.run(*ask, "--temperature", "0", "--seed", "1").stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_save_first_and_the_same_command_resumes(ax: Ax, small: Sequence[str], number: int, code: int) -> None:
    process = ax.start(*small, "--steps", "4000", "--set", "trainer.checkpoint_every=none")
    run = ax.folder / "runs" / "tiny"
    while not ((run / "metrics.jsonl").exists() and losses(run)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, out + err
    assert "the same command resumes" in out
    (saved,) = steps(run)
    assert saved == max(step for step, _ in losses(run))
    before = losses(run)

    more = str(saved + 5)
    ax.run(*small, "--set", "trainer.checkpoint_every=none", "--steps", more)
    after = losses(run)
    assert {line: after[line] for line in before if line[1] == "train"} == {
        line: values for line, values in before.items() if line[1] == "train"
    }
    assert max(step for step, _ in after) == saved + 5


def test_eight_devices_train_as_one_does(ax: Ax, small: Sequence[str]) -> None:
    ax.run(*small, "--run", "one")
    expected = losses(ax.folder / "one")
    for name, axes in {
        "data": "{'data': 8}",
        "fsdp": "{'data': 1, 'fsdp': 8}",
        "both": "{'data': 2, 'fsdp': 4}",
    }.items():
        ax.run(*small, "--run", name, "--cpu-devices", "8", "--set", f"mesh.axes={axes}")
        found = losses(ax.folder / name)
        for line, values in expected.items():
            assert found[line]["loss"] == pytest.approx(values["loss"], abs=2e-4), f"{name}: {line}"


def test_runs_are_repeatable(ax: Ax, small: Sequence[str]) -> None:
    for name in ("a", "b"):
        ax.run(*small, "--run", name)
    assert losses(ax.folder / "a") == losses(ax.folder / "b")
    assert state_digest(ax.folder / "a", 40) == state_digest(ax.folder / "b", 40)


def test_list_and_help_teach(ax: Ax) -> None:
    assert "tiny" in ax.run("list").stdout
    text = ax.run("train", "--help").stdout
    for word in ("--recipe", "--data", "--steps", "--set", "--run", "--on-bad-record", "resumes", "Examples"):
        assert word in text
    shown = ax.run("train", "--show").stdout
    assert "trainer.optimizer.schedule.peak_value = " in shown
