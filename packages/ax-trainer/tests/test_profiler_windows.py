"""Windows of the profiler: traces lie where they should, of the steps that they should be of."""

import os
import signal
from pathlib import Path

import jax
import pytest
from ax_trainer import ProfilerWindows
from runs import train


def steps_traced(folder: Path) -> list[int]:
    """The numbers of the steps that were dispatched while the trace in ``folder`` was taken."""
    (file,) = folder.glob("plugins/profile/*/*.xplane.pb")
    data = jax.profiler.ProfileData.from_file(str(file))
    numbers = {
        int(str(value))
        for plane in data.planes
        for line in plane.lines
        for event in line.events
        if event.name == "train"
        for name, value in event.stats
        if name == "step_num"
    }
    return sorted(numbers)


class Asking:
    """Asks for windows as a person would from outside."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_step(self, step: int, /) -> None:
        if step == 6:
            os.kill(os.getpid(), signal.SIGUSR2)
        if step == 12:
            (self._folder / "profile-now").touch()


@pytest.mark.filterwarnings(
    "ignore:builtin type event_stats has no __module__ attribute:DeprecationWarning"
)  # jaxlib's
def test_windows_by_config_by_signal_and_by_file(tmp_path: Path) -> None:
    cfg = ProfilerWindows.Config(windows=((1, 2), (18, 40)), num_steps=1)
    before = signal.getsignal(signal.SIGUSR2)
    hooks = (Asking(tmp_path), cfg.build(folder=tmp_path))
    train(hooks=hooks, num_steps=19, evaluators={})
    traced = {folder.name: steps_traced(folder) for folder in (tmp_path / "profile").iterdir()}
    # A trace ends when its last step is done, which is known two steps later.
    assert traced == {"1": [1, 2, 3, 4], "7": [7, 8, 9], "13": [13, 14, 15], "18": [18, 19]}
    assert not (tmp_path / "profile-now").exists()
    assert signal.getsignal(signal.SIGUSR2) is before


def test_somebody_elses_trace_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    jax.profiler.start_trace(tmp_path / "other")
    try:
        train(
            hooks=[ProfilerWindows(ProfilerWindows.Config(windows=((2, 3),)), folder=tmp_path)],
            evaluators={},
            num_steps=4,
        )
    finally:
        jax.profiler.stop_trace()
    assert "can't trace into" in caplog.text
    assert not (tmp_path / "profile").exists()


def test_impossible_windows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not 3 to 2"):
        ProfilerWindows(ProfilerWindows.Config(windows=((3, 2),)), folder=tmp_path)
