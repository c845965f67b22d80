"""How long each step took, seen from the host."""

from __future__ import annotations

import time


class StepTimer:
    """Fits ``Hook`` of ax-trainer."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}

    def on_step(self, step: int, /) -> None:
        self.times[step] = time.monotonic()
