"""The speedometer, on a clock that the test turns."""

import pytest
from ax_trainer import Speedometer


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_means_over_a_window_that_leaves_out_what_is_no_step() -> None:
    clock = Clock()
    speed = Speedometer(tokens_per_step=30, flops_per_step=60, peak_flops=100, window=2, clock=clock)
    clock.now += 50  # compiling
    speed.restart()
    clock.now += 1
    assert speed.lap() == {"step_seconds": 1.0, "tokens_per_second": 30.0, "mfu": 0.6}
    clock.now += 3
    assert speed.lap()["step_seconds"] == 2.0
    clock.now += 70  # evaluating
    speed.restart()
    clock.now += 5
    assert speed.lap()["step_seconds"] == 4.0


def test_tells_only_what_it_can_know() -> None:
    assert Speedometer().lap().keys() == {"step_seconds"}
    with pytest.raises(ValueError, match="without peak_flops"):
        Speedometer(flops_per_step=1.0)
