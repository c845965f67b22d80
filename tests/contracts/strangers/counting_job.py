"""A job that counts, and remembers in a file how far it came."""

from __future__ import annotations

from pathlib import Path

from ax_runtime.protocols import Stop


class CountingJob:
    """Fits ``Job`` of ax-runtime."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps

    def run(self, folder: Path, stop: Stop, /) -> None:
        file = folder / "count.txt"
        done = int(file.read_text()) if file.exists() else 0
        for step in range(done + 1, self._num_steps + 1):
            file.write_text(str(step))
            if stop.should_stop(step):
                return
