"""Where the time of a run goes: to steps, or to what keeps the devices from them.

The account follows the devices. While they are at work on a step, time is productive, whatever the host does meanwhile; while
they stand idle, it is charged to what the host is doing: waiting for a batch, compiling, evaluating. So input that is slower than a
batch but hidden behind the step costs nothing, and what is charged to input is what faster input would gain. Every second is
charged once: the seconds of all causes are the run's.

The host says what it is doing (``spending``), and when the devices began and ended each step (``worked``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Literal, TypeAlias

Cause: TypeAlias = Literal[
    "step", "start", "compile", "input", "evaluation", "checkpoint", "check", "other", "rewind", "lost", "down"
]
"""What a second may be charged to.

"step" is productive. "start" is restoring or initialising, "input" waiting for a batch, "checkpoint" what a save keeps the loop from,
"check" looking for corruption, "other" the loop itself and its hooks. "rewind" is going back to a checkpoint within a process; "lost" is steps that were done and have
to be done again; "down" is between processes.
"""


class Goodput:
    """Seconds by cause; see the module's docstring.

    Args:
        clock: Tells seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._totals: dict[str, float] = {}
        self._settled = clock()  # all time before is charged
        self._changes: deque[tuple[float, Cause]] = deque([(self._settled, "other")])
        self._doing: list[Cause] = ["other"]

    @contextmanager
    def spending(self, cause: Cause) -> Iterator[None]:
        """While in this context, idle devices are charged to ``cause``; an inner context goes before an outer one."""
        self._doing.append(cause)
        self._changes.append((self._clock(), cause))
        try:
            yield
        finally:
            self._doing.pop()
            self._changes.append((self._clock(), self._doing[-1]))

    def worked(self, start: float, end: float) -> None:
        """The devices were given a step at ``start`` and had done it at ``end``; steps are told in their order."""
        self._charge_idle(start)
        self.charge("step", max(end - self._settled, 0.0))
        self._settle(end)

    def carry(self, seconds: Mapping[str, float]) -> None:
        """Add what earlier processes of the run came to, by cause."""
        for cause, value in seconds.items():
            self._totals[cause] = self._totals.get(cause, 0.0) + value

    def charge(self, cause: Cause, seconds: float) -> None:
        """Charge seconds of which the clock knows nothing, such as those between processes."""
        self._totals[cause] = self._totals.get(cause, 0.0) + seconds

    def move(self, seconds: float, *, origin: Cause, to: Cause) -> None:
        """Charge to another cause what has been charged to ``origin``, of which there may be less."""
        seconds = min(seconds, self._totals.get(origin, 0.0))
        self.charge(origin, -seconds)
        self.charge(to, seconds)

    def seconds(self) -> dict[str, float]:
        """The seconds by cause, up to now: to be asked when the devices have nothing left to do."""
        self._charge_idle(self._clock())
        return dict(self._totals)

    def report(self) -> dict[str, float]:
        """What goes to the sinks: ``share``, that of productive time; ``seconds``, of all causes; and those of each."""
        seconds = self.seconds()
        total = sum(seconds.values())
        share = seconds.get("step", 0.0) / total if total else 0.0
        return {"share": share, "seconds": total, **{f"{cause}_seconds": value for cause, value in seconds.items()}}

    def _charge_idle(self, until: float) -> None:
        """Charge what isn't charged yet, up to ``until``, to what the host did."""
        changes = [*self._changes, (until, "other")]
        for (start, cause), (end, _) in pairwise(changes):
            seconds = min(end, until) - max(start, self._settled)
            if seconds > 0:
                self.charge(cause, seconds)
        self._settle(until)

    def _settle(self, until: float) -> None:
        self._settled = max(self._settled, until)
        while len(self._changes) > 1 and self._changes[1][0] <= self._settled:
            self._changes.popleft()
