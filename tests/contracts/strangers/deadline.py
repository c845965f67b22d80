"""Time is up: for a queue that kills what runs too long."""

from __future__ import annotations

import time


class Deadline:
    """Fits ``StopSignal`` of ax-trainer and ``Stop`` of ax-runtime; a deadline once passed stays passed."""

    def __init__(self, *, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def should_stop(self, step: int, /) -> bool:
        return time.monotonic() >= self._end
