"""When each step was done on the devices: a thread waits for them, so that the loop needn't.

The loop reads a step's numbers when it gets to it, which may be long after they arrived. Who wants to know how long a step took, how
long the devices stood idle, or whether they still come forward, has to have waited.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

import jax


class Arrival(NamedTuple):
    """A step that is done."""

    step: int
    dispatched: float
    """When the loop began to give it to the devices."""
    done: float


class _Expected(NamedTuple):
    step: int
    dispatched: float
    outcome: jax.Array


class Arrivals:
    """Notes when steps are done. ``close`` it; the thread then ends as soon as the devices have done what was expected of them.

    Args:
        clock: Tells seconds.
        on_arrival: Told of each, in the thread.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, on_arrival: Callable[[Arrival], None] | None = None
    ) -> None:
        self._clock = clock
        self._on_arrival = on_arrival
        self._expected: SimpleQueue[_Expected | None] = SimpleQueue()
        self._arrived: SimpleQueue[Arrival] = SimpleQueue()
        # A daemon, for devices that hang mustn't keep a process alive that wants to end.
        threading.Thread(target=self._wait, name="arrivals", daemon=True).start()

    def expect(self, step: int, dispatched: float, outcome: jax.Array) -> None:
        """``outcome`` is something that ``step`` computes, given to the devices at ``dispatched``; it must not be donated."""
        self._expected.put(_Expected(step, dispatched, outcome))

    def next(self) -> Arrival:
        """The next arrival, in the order in which they were expected; waits for it."""
        return self._arrived.get()

    def close(self) -> None:
        """No more is expected."""
        self._expected.put(None)

    def _wait(self) -> None:
        while (expected := self._expected.get()) is not None:
            with contextlib.suppress(Exception):  # whatever the devices failed with, the loop meets it when it reads
                expected.outcome.block_until_ready()
            arrival = Arrival(expected.step, expected.dispatched, self._clock())
            del expected
            if self._on_arrival is not None:
                self._on_arrival(arrival)
            self._arrived.put(arrival)
