"""The seams that ax-runtime owns: what it runs, and what it gives to what it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Stop(Protocol):
    """Tells work that it should save and return. A trainer's stop signal is the same thing."""

    def should_stop(self, step: int, /) -> bool:
        """Whether to stop after ``step``; once true, it stays true."""
        ...


class Job(Protocol):
    """Work that lives in a folder and can be asked to stop."""

    def run(self, folder: Path, stop: Stop, /) -> None:
        """Do the work, or what is left of it after an earlier run in the same ``folder``.

        Returns early, with everything saved, soon after ``stop.should_stop(step)`` turns true.
        """
        ...
