"""Who set what: every config remembers where each of its values came from.

A config keeps a log, newest entry first, as a linked list of tuples that never change, so that a copy shares the log of
its original by one pointer. An entry holds the code and the instruction that set a value (file and line are worked out
when somebody asks), the modifiers or overrides at work at that moment, and what stood there before. A constructor call
leaves one entry for all the values that it was given. That is all the cost: a look at the caller's frame and a tuple.

``acting(who)`` names who is at work: a modifier, or a sentence such as ``--set model.dim=3``. ``explain`` reads the logs
(see ``_explain``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType
from typing import TypeAlias

Actors: TypeAlias = "tuple[object, Actors] | None"
"""Who is at work, innermost first, linked."""

Log: TypeAlias = "tuple[CodeType, int, Actors, str | tuple[str, ...], object, Log, int] | None"
"""Code, instruction, actors, the field's name (a tuple of names: the constructor), what was there, older, length."""

_LONGEST = 256
"""A log that is longer forgets: nobody reads so far, and a value set in a loop mustn't fill the memory."""

_HERE = __file__[: -len("_provenance.py")]
_actors: ContextVar[Actors] = ContextVar("ax_config_actors", default=None)


class _Inside(dict[str, bool]):
    """Whether a file belongs to this package."""

    def __missing__(self, filename: str) -> bool:
        self[filename] = filename.startswith(_HERE)
        return self[filename]


_inside = _Inside()


class Nothing:
    """Stands in a log for a field that was not set before."""


@contextmanager
def acting(who: object) -> Iterator[None]:
    """Values set inside are recorded as set by ``who``: a modifier's config, or a sentence."""
    token = _actors.set((who, _actors.get()))
    try:
        yield
    finally:
        _actors.reset(token)


def logged(log: Log, name: str | tuple[str, ...], before: object, depth: int) -> Log:
    """``log`` with an entry on top, set by the first caller outside this package, ``depth`` frames up or more."""
    frame = sys._getframe(depth)
    code = frame.f_code
    while _inside[code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
        code = frame.f_code
    if log is None or log[6] >= _LONGEST:
        return (code, frame.f_lasti, _actors.get(), name, before, None, 1)
    return (code, frame.f_lasti, _actors.get(), name, before, log, log[6] + 1)
