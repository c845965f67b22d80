"""Several processes, one folder: saved together or not at all, and restored by any number."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

WORKER = str(Path(__file__).with_name("one_of_several.py"))


def _run(folder: Path, what: str, *, number: int, devices: int = 1) -> list[tuple[int, str, str]]:
    """How each process ended, and what it said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, WORKER, port, str(number), str(rank), str(folder), what],
            env={**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(number)
    ]
    try:
        if what == "die":
            processes[-1].wait(timeout=120)
            deadline = time.monotonic() + 60
            while not (folder / "saving-4").exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.5)  # for the first process to write its part; it would wait until it notices that it is alone
            processes[0].kill()
        ended = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *said) for process, said in zip(processes, ended, strict=True)]


def _succeed(folder: Path, what: str, *, number: int, devices: int = 1) -> list[str]:
    for code, _, err in (ended := _run(folder, what, number=number, devices=devices)):
        assert code == 0, err
    return [out.splitlines()[-1] for _, out, _ in ended if out]


def test_a_step_is_saved_by_all_or_by_none_and_restored_by_any_number(tmp_path: Path) -> None:
    _succeed(tmp_path, "save", number=2, devices=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]
    died = _run(tmp_path, "die", number=2, devices=2)
    assert [code for code, _, _ in died] == [-signal.SIGKILL] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3", "saving-4"]
    assert _succeed(tmp_path, "restore", number=1, devices=4) == ["3"]

    damaged = max((tmp_path / "3" / "arrays").rglob("*"), key=lambda file: file.stat().st_size if file.is_file() else 0)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    _succeed(tmp_path, "damaged", number=2, devices=2)
