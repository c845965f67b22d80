"""Several processes train as one: the same losses, and what one of them is told, or goes wrong, is answered by all."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

import numpy as np
from ax_trainer import BadSteps
from ax_trainer.testing import MemoryCheckpointer, MemorySink
from runs import Poisoned, train

WORKER = Path(__file__).parent / "worker.py"
STEPS = 40


class Told(TypedDict):
    step: int
    why: str
    losses: dict[str, float]


def start(number: int, folder: Path, *, steps: int) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    paths = filter(None, [str(WORKER.parent), os.environ.get("PYTHONPATH")])
    env = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
        "PYTHONPATH": os.pathsep.join(paths),  # the tests' own modules
    }
    return [
        subprocess.Popen(
            [sys.executable, str(WORKER), port, str(number), str(rank), str(folder), str(steps)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(number)
    ]


def end(processes: list[subprocess.Popen[str]], folder: Path) -> list[Told]:
    try:
        said = [process.communicate(timeout=180) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, stderr) in zip(processes, said, strict=True):
        assert process.returncode == 0, stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(len(processes))]


def test_four_processes_then_two_train_as_one_does(tmp_path: Path) -> None:
    processes = start(4, tmp_path, steps=STEPS)
    stdout = processes[2].stdout
    assert stdout is not None
    while stdout.readline() not in ("step 9\n", ""):  # the batch of step 5 was bad
        pass
    processes[2].send_signal(signal.SIGTERM)
    first = end(processes, tmp_path)
    stopped = first[0]["step"]
    assert 9 < stopped < STEPS
    assert {(told["step"], told["why"]) for told in first} == {(stopped, "stopped")}
    assert {max(int(file.stem) for file in (tmp_path / str(rank)).iterdir()) for rank in range(4)} == {stopped}

    for rank in (2, 3):
        shutil.rmtree(tmp_path / str(rank))
    second = end(start(2, tmp_path, steps=stopped + 3), tmp_path)
    assert [(told["step"], told["why"]) for told in second] == [(stopped + 3, "finished")] * 2

    sink = MemorySink()
    bad_steps = BadSteps.Config(on_non_finite="rewind", max_interventions=100)
    train(MemoryCheckpointer(), sink, model=Poisoned(), evaluators={}, num_steps=stopped + 3, bad_steps=bad_steps)
    losses = sink.history("train")
    np.testing.assert_allclose(
        [first[0]["losses"][str(step)] for step in range(1, stopped + 1)],
        [losses[step] for step in range(1, stopped + 1)],
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        [second[0]["losses"][str(step)] for step in range(stopped + 1, stopped + 4)],
        [losses[step] for step in range(stopped + 1, stopped + 4)],
        rtol=1e-6,
    )
