"""Turn Ctrl-C and SIGTERM into a question that a loop asks between steps."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self, TypeAlias, final

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@final
class StopOnSignals:
    """While entered, the first SIGINT or SIGTERM asks for a stop, and a second SIGINT raises KeyboardInterrupt.

    Fits a trainer's ``StopSignal``. Enter it in the main thread; the handlers that stood before are put back on exit.
    """

    def __init__(self) -> None:
        self._received: signal.Signals | None = None
        self._before: dict[signal.Signals, _Handler] = {}

    @property
    def signal_name(self) -> str | None:
        """``"SIGINT"`` or ``"SIGTERM"``, whichever came first; None when none came."""
        return None if self._received is None else self._received.name

    def should_stop(self, _step: int = 0, /) -> bool:
        """Whether a signal has come."""
        return self._received is not None

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None stands for a handler that was not set from Python: it can't be put back, the default is nearest.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._received is None:
            self._received = signal.Signals(number)
