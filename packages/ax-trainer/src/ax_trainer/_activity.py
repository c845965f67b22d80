"""What the loop is doing, told at once to the account of its time and to the watchdog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ._goodput import Cause, Goodput
from ._watchdog import Watchdog

_TAKES_ITS_TIME = frozenset[Cause]({"start", "compile", "evaluation", "checkpoint", "check", "rewind"})


class Activity:
    """Calling it opens a context in which the loop does something that has a cause, for the account, and words, for people."""

    def __init__(self, goodput: Goodput, watchdog: Watchdog | None) -> None:
        self._goodput = goodput
        self._watchdog = watchdog

    @contextmanager
    def __call__(self, cause: Cause, what: str) -> Iterator[None]:
        """In this context the loop does ``what``."""
        with self._goodput.spending(cause):
            if self._watchdog is None:
                yield
            else:
                with self._watchdog.doing(what, allowed=cause in _TAKES_ITS_TIME):
                    yield
