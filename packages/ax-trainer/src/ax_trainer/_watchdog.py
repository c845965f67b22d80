"""A thread that notices when training has come to a standstill, and says where.

A job that hangs costs as much as one that runs, and says nothing. The sign of life is a step's outcome that arrives from the devices:
a loop that only dispatches isn't alive. When none comes in time, the watchdog writes what the loop is doing, the collectives of the
step if it is the devices that are waited for, and the stacks of all threads of the process; then it warns, or ends the process,
so that whoever started it starts it again.

No backend tells which collective a device waits in. Those that the compiled step has are listed: it is one of them.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple, final

import ax_config

from ._arrivals import Arrival

_LOG = logging.getLogger(__name__)
_STDERR = 2
_LONGEST_NAP = 5.0
_COLLECTIVE = re.compile(
    r"= (?P<shape>\S+).*? (?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast)"
    r"(?:-start)?\((?:.*op_name=\"(?P<name>[^\"]*)\")?"
)


class _Doing(NamedTuple):
    what: str
    since: float
    allowed: bool
    """Whether it may take its time: it isn't a step, nor part of one."""


@final
class Watchdog:
    """Watches the steps; see the module's docstring.

    Args:
        cfg: When to bark.
        clock: Tells seconds.
        leave: Ends the process.
    """

    class Config(ax_config.Config["Watchdog"]):
        """How long a step may take until something is wrong, and what to do then."""

        deadline_seconds: float | None = None
        """From the end of a step to that of the next; None means ``factor`` times the median of recent steps."""
        factor: float = 20.0
        least_seconds: float = 60.0
        """No deadline that is computed is shorter."""
        allowance_seconds: float = 3600.0
        """For what isn't a step: restoring, compiling, the first step after that, an evaluation, a save."""
        action: Literal["warn", "exit"] = "warn"
        exit_code: int = 70
        """EX_SOFTWARE of sysexits.h."""
        file: str | None = None
        """Where stacks are appended, beside the standard error."""

    def __init__(
        self,
        cfg: Config,
        /,
        *,
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        for name, value in (
            ("deadline_seconds", cfg.deadline_seconds),
            ("factor", cfg.factor),
            ("least_seconds", cfg.least_seconds),
            ("allowance_seconds", cfg.allowance_seconds),
        ):
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        self._cfg = cfg
        self._clock = clock
        self._leave = leave
        self._laps: deque[float] = deque(maxlen=32)
        self._alive = self._said = clock()  # the last sign of life, and the last bark
        self._last_step: int | None = None
        self._doing = [_Doing("in the loop or a hook", self._alive, allowed=False)]
        self._program: Callable[[], str | None] | None = None
        self._closed = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def close(self) -> None:
        """Watch no longer."""
        self._closed.set()

    def runs(self, program: Callable[[], str | None], /) -> None:
        """The step's compiled program can be had by this function, as text."""
        self._program = program

    @contextmanager
    def doing(self, what: str, *, allowed: bool = False) -> Iterator[None]:
        """The loop does ``what`` in this context; if ``allowed``, it may take its time."""
        self._doing.append(_Doing(what, self._clock(), allowed))
        try:
            yield
        finally:
            self._doing.pop()
            if allowed:
                self._alive = self._clock()

    def arrived(self, arrival: Arrival, /) -> None:
        """A step is done: all is well."""
        self._laps.append(arrival.done - max(arrival.dispatched, self._alive))
        self._alive = arrival.done
        self._last_step = arrival.step

    def deadline(self) -> float:
        """Seconds that what goes on now may take."""
        cfg = self._cfg
        if self._doing[-1].allowed:
            return cfg.allowance_seconds
        if cfg.deadline_seconds is not None:
            return cfg.deadline_seconds
        return max(cfg.factor * median(self._laps), cfg.least_seconds) if self._laps else cfg.allowance_seconds

    def overdue(self) -> str | None:
        """What to say if nothing has happened for longer than the deadline; else None. Said once, it is silent for as long again."""
        now, doing, deadline = self._clock(), self._doing[-1], self.deadline()
        since = doing.since if doing.allowed else self._alive
        if now - max(since, self._said) < deadline:
            return None
        self._said = now
        last = (
            "no step was done yet" if self._last_step is None else f"the last step that was done is {self._last_step}"
        )
        return f"no progress for {now - since:.3g} s (the deadline is {deadline:.3g} s): {doing.what}; {last}"

    def _watch(self) -> None:
        while not self._closed.wait(min(self.deadline() / 10, _LONGEST_NAP)):
            said = self.overdue()
            if said is not None:
                self._bark(said)

    def _bark(self, said: str) -> None:
        cfg = self._cfg
        text = f"watchdog: {said}\n{self._collectives()}stacks of all threads:\n"
        os.write(_STDERR, text.encode())
        faulthandler.dump_traceback(_STDERR)
        if cfg.file is not None:
            with Path(cfg.file).open("a") as file:
                file.write(text)
                file.flush()
                faulthandler.dump_traceback(file)
        if cfg.action == "exit":
            self._leave(cfg.exit_code)
        _LOG.warning("%s", said)

    def _collectives(self) -> str:
        text = None if self._program is None or self._doing[-1].allowed else self._program()
        return "".join(f"the step has {line}\n" for line in collectives(text or ""))


def collectives(program: str) -> list[str]:
    """The collectives of a compiled program, given as XLA's text: kind, shape, operation, and how often, in order of the text."""
    found = Counter(
        (match["kind"], match["shape"].split("{")[0], match["name"] or "?") for match in _COLLECTIVE.finditer(program)
    )
    return [f"{number} × {kind} {shape} of {name}" for (kind, shape, name), number in found.items()]
