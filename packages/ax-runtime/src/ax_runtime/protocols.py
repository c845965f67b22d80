"""The seam that ax-runtime owns: what it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Job(Protocol):
    """Work that lives in a folder and can be asked to stop."""

    def run(self, folder: Path, should_stop: Callable[[], bool], /) -> None:
        """Do the work, or what is left of it after an earlier run in the same ``folder``.

        Returns early, with everything saved, soon after ``should_stop()`` turns true.
        """
        ...
