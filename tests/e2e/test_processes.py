"""The same command in four processes, killed; then in two, stopped; then in one: the losses of a run in one process."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from command import Ax
from history import losses, steps

NUM_STEPS = 60
OPTIONS = ("--steps", str(NUM_STEPS), "--set", "mesh.axes={'fsdp': -1}", "--set", "checkpoints.keep_every=7")


def start(ax: Ax, number: int, *args: str) -> list[subprocess.Popen[str]]:
    """The command in so many processes with four devices together, in one run folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    env = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={4 // number} --xla_backend_optimization_level=0"}
    together = ("--coordinator", address, "--processes", str(number)) if number > 1 else ()
    return [
        ax.start(*args, *together, *(("--process", str(index)) if together else ()), env=env) for index in range(number)
    ]


def wait_for(run: Path, step: int, processes: Sequence[subprocess.Popen[str]]) -> None:
    """Return when the metrics of ``step`` are written."""
    deadline = time.monotonic() + 240
    while not (run / "metrics.jsonl").exists() or max((at for at, _ in losses(run)), default=0) < step:
        assert all(process.poll() is None for process in processes), processes[0].communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """How each ended, and what it said."""
    try:
        said = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def test_processes_come_and_go_and_the_losses_stay(ax: Ax, small: Sequence[str], tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    for code, _, err in end(start(ax, 1, *small, *OPTIONS, "--run", str(alone))):
        assert code == 0, err

    run = tmp_path / "together"
    command = (*small, *OPTIONS, "--run", str(run))
    four = start(ax, 4, *command)
    wait_for(run, 17, four)
    four[1].send_signal(signal.SIGKILL)
    codes = [code for code, _, _ in end(four)]  # the others notice by themselves
    assert codes[1] == -signal.SIGKILL
    assert not {0, 2} & set(codes), codes
    assert steps(run)[-1] >= 7

    two = start(ax, 2, *command)
    wait_for(run, steps(run)[-1] + 10, two)
    two[1].send_signal(signal.SIGTERM)  # one is told to stop, both do
    stopped = end(two)
    assert [code for code, _, _ in stopped] == [143] * 2, stopped
    assert "resume  from the checkpoint of step" in stopped[0][1]
    assert not any(line for _, out, _ in stopped[1:] for line in out.splitlines() if "[Gloo]" not in line)
    assert 17 < steps(run)[-1] < NUM_STEPS

    for code, _, err in end(start(ax, 1, *command)):
        assert code == 0, err

    expected, got = losses(alone), losses(run)
    train = [(step, name) for step, name in expected if name in ("train", "validation")]
    assert [line for line in got if line[1] in ("train", "validation")] == train
    assert [got[line]["loss"] for line in train] == pytest.approx([expected[line]["loss"] for line in train], rel=1e-5)
    starts = (run / "environment.json").read_text()
    assert [starts.count(f'"processes": {number}') for number in (1, 2, 4)] == [1, 1, 1]


def test_what_one_process_is_told_wrongly_is_told_once(ax: Ax, small: Sequence[str]) -> None:
    ax.refuse(*small, "--processes", "2", match="of --coordinator, --processes and --process all or none are needed")


def test_a_failure_of_the_first_process_ends_the_others(ax: Ax, small: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    ended = end(start(ax, 2, *small))
    assert ended[0][0] == 2
    assert "can't be a run folder" in ended[0][2]
    assert ended[1][0] != 0
