"""Failures of a save reach the user as our errors; what Orbax and its event loop print beside them is dropped.

When one of the many concurrent writes of a save fails, Orbax raises and closes its event loop under the others. Each of
those then logs a traceback as a task whose exception nobody asked for, and tensorstore, which still wants to tell the loop
that a write has ended, has another printed by ``sys.unraisablehook``.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_hook = sys.unraisablehook


def silence_orbax() -> None:
    """Drop what Orbax logs and what is printed of the writes that it gave up, and nothing that anybody else does."""
    global _hook
    for name in ("absl", "asyncio"):
        logger = logging.getLogger(name)
        if _not_from_orbax not in logger.filters:
            logger.addFilter(_not_from_orbax)
    if sys.unraisablehook is not _except_closed_loop:
        _hook, sys.unraisablehook = sys.unraisablehook, _except_closed_loop


def _not_from_orbax(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)] if error is not None else []
    return not any("/orbax/checkpoint/" in file for file in (record.pathname, *files))


def _except_closed_loop(unraisable: UnraisableHookArgs, /) -> None:
    """The hook that was there, but for a call into a closed loop that no line of Python made."""
    frames = [frame.name for frame in traceback.extract_tb(unraisable.exc_traceback)]
    if not (isinstance(unraisable.exc_value, RuntimeError) and frames == ["call_soon_threadsafe", "_check_closed"]):
        _hook(unraisable)
