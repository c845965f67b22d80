"""How fast training goes, over a window of steps that leaves out whatever is not a step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable


class Speedometer:
    """Turns the moments at which steps were complete into step time, tokens/s and model FLOPs utilisation."""

    def __init__(
        self,
        *,
        tokens_per_step: float | None = None,
        flops_per_step: float | None = None,
        peak_flops: float | None = None,
        window: int = 32,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if flops_per_step is not None and peak_flops is None:
            raise ValueError("flops_per_step without peak_flops (of all devices together): utilisation is their ratio")
        self._tokens = tokens_per_step
        self._flops = flops_per_step
        self._peak = peak_flops
        self._clock = clock
        self._laps: deque[float] = deque(maxlen=window)
        self._since = clock()

    def restart(self) -> None:
        """The clock runs from now: what happened since the last lap was no training."""
        self._since = self._clock()

    def lap(self) -> dict[str, float]:
        """A step is complete: the means over the window that ends with it."""
        now = self._clock()
        self._laps.append(now - self._since)
        self._since = now
        seconds = sum(self._laps) / len(self._laps)
        values = {"step_seconds": seconds}
        if self._tokens is not None:
            values["tokens_per_second"] = self._tokens / seconds
        if self._flops is not None and self._peak is not None:
            values["mfu"] = self._flops / seconds / self._peak
        return values
