"""For tests of jobs: a stop that says so after a while, and the kit of ``Job``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .protocols import Job


class StopAfter:
    """A ``Stop`` that is true from the ``asks``-th question on, or never; it remembers the steps it was asked about."""

    def __init__(self, asks: int | None = None) -> None:
        self.asks = asks
        self.steps: list[int] = []

    def should_stop(self, step: int, /) -> bool:
        """Whether to stop after ``step``."""
        self.steps.append(step)
        return self.asks is not None and len(self.steps) >= self.asks


def check_job(make: Callable[[], Job], folder: Path) -> None:
    """A job stops when it is told to, and another one goes on where it stopped. Raises AssertionError.

    ``make`` gives a fresh job of at least three steps each time; ``folder`` is empty at first.
    """
    first = StopAfter(2)
    make().run(folder, first)
    assert first.steps, "the job must ask should_stop() between steps, but it never did"
    assert len(first.steps) >= 2, "the job must have three steps or more, but it ended after the first question"
    assert len(first.steps) <= 3, (
        f"the job must return soon after should_stop() was true, but it asked at {first.steps}"
    )
    rest = StopAfter()
    make().run(folder, rest)
    assert rest.steps, f"the job must go on after step {first.steps[1]}, but it asked about no further step"
    assert rest.steps[0] >= first.steps[1], (
        f"the job must go on where it was stopped, after step {first.steps[1]}, but it began again at {rest.steps[0]}"
    )
