"""Four processes with two devices each train as one process with eight does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from .cases import CASES, configured
from .training import NUM_STEPS, Kind, Training, check_equal, train

NUM_PROCESSES = 4


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fsdp", "dense"),
        ("data-tensor", "dense"),
        ("tensor-ring", "dense"),
        ("expert-fsdp", "moe"),
        pytest.param("pipeline-fsdp-tensor", "dense", marks=pytest.mark.sample),
        ("pipeline-expert-fsdp", "moe"),
    ],
)
def test_four_processes_are_as_good_as_one(name: str, kind: Kind, tmp_path: Path) -> None:
    file = tmp_path / "found.npz"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    flags = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
    worker = str(Path(__file__).with_name("worker.py"))
    processes = [
        subprocess.Popen(
            [sys.executable, worker, port, str(NUM_PROCESSES), str(rank), name, kind, str(file)],
            env={**os.environ, "XLA_FLAGS": flags},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(NUM_PROCESSES)
    ]
    try:
        for process in processes:
            _, stderr = process.communicate(timeout=600)
            assert process.returncode == 0, stderr
    finally:
        for process in processes:
            process.kill()
    _, config = configured(CASES[name], kind)
    check_equal(loaded(file), train(config.build(devices=jax.devices()[:8]), packed=True))


def loaded(file: Path) -> Training:
    """What the first process wrote."""
    with np.load(file) as arrays:
        groups: dict[str, dict[str, np.ndarray]] = {}
        for name in arrays.files:
            group, _, path = name.partition(":")
            groups.setdefault(group, {})[path] = arrays[name]
    losses = [float(loss) for loss in groups["losses"][""]]
    return Training(groups["initial"], losses, [groups[str(step)] for step in range(NUM_STEPS)])
