"""A job run here: folder, lock and signals around it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from ax_runtime.agent import RunFolder, RunFolderError, run_locally
from ax_runtime.protocols import Stop
from ax_runtime.testing import check_job


class Count:
    """Counts steps into a file; a signal comes after ``signal_at``."""

    def __init__(self, steps: int, signal_at: int | None = None) -> None:
        self.steps = steps
        self.signal_at = signal_at

    def run(self, folder: Path, stop: Stop, /) -> None:
        file = folder / "count"
        step = int(file.read_text()) if file.exists() else 0
        while step < self.steps and not stop.should_stop(step):
            step += 1
            file.write_text(str(step))
            if step == self.signal_at:
                os.kill(os.getpid(), signal.SIGTERM)


def test_it_stops_on_a_signal_and_continues(tmp_path: Path) -> None:
    outcome = run_locally(Count(5, signal_at=2), tmp_path, config="")
    assert (outcome.finished, outcome.stopped_by) == (False, "SIGTERM")
    assert (tmp_path / "count").read_text() == "2"
    outcome = run_locally(Count(5), tmp_path, config="")
    assert (outcome.finished, outcome.stopped_by) == (True, None)
    assert (tmp_path / "count").read_text() == "5"


def test_the_folder_is_locked_meanwhile_and_free_after_an_error(tmp_path: Path) -> None:
    class Failing:
        def run(self, folder: Path, stop: Stop, /) -> None:
            with pytest.raises(RunFolderError, match="in use"):
                RunFolder(folder, config="")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_locally(Failing(), tmp_path, config="")
    RunFolder(tmp_path, config="").close()


def test_the_kit_takes_a_job_that_continues_and_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    check_job(lambda: Count(5), tmp_path / "a")

    class Forgetful:
        def run(self, folder: Path, stop: Stop, /) -> None:
            for step in range(1, 6):
                if stop.should_stop(step):
                    return

    with pytest.raises(AssertionError, match="must go on where it was stopped, after step 2, but it began again at 1"):
        check_job(Forgetful, tmp_path / "b")
