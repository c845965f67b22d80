"""A look at what the devices and the host do, for a few steps, when it is asked for.

A window is a range of steps that ``jax.profiler`` traces into ``FOLDER/profile/<first step>``, where TensorBoard's profile plugin and
XProf find it (``tensorboard --logdir FOLDER``). Windows are set by config, or asked of a running process: by a signal, or by a file called
``profile-now`` in the folder, which is taken away when it is seen.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import final

import ax_config
import jax

_LOG = logging.getLogger(__name__)
_UNTIL_DONE = 2
"""A step is certainly done when so many more have been dispatched: the loop has read its numbers then."""


@final
class ProfilerWindows:
    """Traces windows of steps. Fits ``Hook`` and ``SupportsStartAndEnd``.

    Windows that follow each other within two steps become one. A trace that can't be begun, since somebody else's is running, is a
    warning: training goes on. Each process traces its own devices; the file is seen by one process, the signal by whom it is sent to.

    Args:
        cfg: When.
        folder: The run's.

    Raises:
        ValueError: A window ends before it begins, or begins before step 1.
    """

    class Config(ax_config.Config["ProfilerWindows"]):
        """Which steps are traced."""

        windows: tuple[tuple[int, int], ...] = ()
        """The first and the last step of each."""
        num_steps: int = 5
        """How many steps a window has that is asked for."""
        on_signal: bool = True
        """Whether SIGUSR2 asks for a window, where there is such a signal and the loop runs in the main thread."""
        python: bool = False
        """Whether calls of Python functions are traced too: traces grow large, and the host slow."""

    def __init__(self, cfg: Config, /, *, folder: str | os.PathLike[str]) -> None:
        for first, last in (*cfg.windows, (1, cfg.num_steps)):
            if not 1 <= first <= last:
                raise ValueError(f"a window must be of steps from 1, the first before the last, not {first} to {last}")
        self._cfg = cfg
        self._folder = Path(folder)
        self._asked = False
        self._last: int | None = None
        """The last step of the window that is open."""
        self._handler: object = None

    def on_start(self, step: int, /) -> None:
        """Listen to the signal, and begin if a window is of the next step."""
        if self._cfg.on_signal and hasattr(signal, "SIGUSR2") and threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGUSR2, self._ask)
        self._begin_before(step + 1)

    def on_step(self, step: int, /) -> None:
        """End the window if it is over, and begin if one is of the next step."""
        if self._last is not None and step >= self._last + _UNTIL_DONE:
            self._end()
        self._begin_before(step + 1)

    def on_end(self, _step: int, /) -> None:
        """End the window, if one is open, and listen no longer."""
        if self._last is not None:
            self._end()
        if self._handler is not None:
            signal.signal(signal.SIGUSR2, self._handler)  # type: ignore[arg-type]  # it is what signal() gave
            self._handler = None

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        self._asked = True

    def _begin_before(self, step: int) -> None:
        request = self._folder / "profile-now"
        if request.exists():
            request.unlink(missing_ok=True)
            self._asked = True
        ends = [last for first, last in self._cfg.windows if first <= step <= last]
        if self._asked:
            ends.append(step + self._cfg.num_steps - 1)
            self._asked = False
        if not ends:
            return
        if self._last is None and not self._begin(self._folder / "profile" / str(step)):
            return
        self._last = max(ends) if self._last is None else max(self._last, *ends)

    def _begin(self, path: Path) -> bool:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = int(self._cfg.python)
        try:
            jax.profiler.start_trace(path, profiler_options=options)
        except RuntimeError as error:
            _LOG.warning("can't trace into %s: %s", path, error)
            return False
        return True

    def _end(self) -> None:
        self._last = None
        jax.profiler.stop_trace()
