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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import TypeAlias

Actors: TypeAlias = "tuple[object, Actors, bool] | None"
"""Who is at work, innermost first, linked; and whether that says it all, so that no line of code need be told."""

Log: TypeAlias = "tuple[CodeType | None, int, Actors, str | tuple[str, ...], object, Log, int] | None"
"""Code, instruction, actors, the field's name (a tuple of names: the constructor), what was there, older, length."""

_LONGEST = 256
"""A log that is longer forgets: nobody reads so far, and a value set in a loop mustn't fill the memory."""

_HERE = __file__[: -len("_provenance.py")]
_actors: ContextVar[Actors] = ContextVar("ax_config_actors", default=None)
_frame: Callable[[int], FrameType] = sys._getframe


class _Inside(dict[str, bool]):
    """Whether a file belongs to this package."""

    def __missing__(self, filename: str) -> bool:
        self[filename] = filename.startswith(_HERE)
        return self[filename]


_inside = _Inside()


class Nothing:
    """Stands in a log for a field that was not set before."""


@contextmanager
def acting(who: object, *, says_all: bool = False) -> Iterator[None]:
    """Values set inside are recorded as set by ``who``: a modifier's config, or a sentence.

    With ``says_all`` the line of code that sets them is of no interest: it is a modifier's of this package, say.
    """
    token = _actors.set((who, _actors.get(), says_all))
    try:
        yield
    finally:
        _actors.reset(token)


def says_all() -> bool:
    """Whether whoever is at work says it all."""
    actors = _actors.get()
    return actors is not None and actors[2]


def given(names: tuple[str, ...]) -> Log:
    """The log of a config whose constructor was called two frames up, with values for ``names``."""
    frame = _frame(2)
    code = frame.f_code
    if _inside[code.co_filename]:
        frame = _outside(frame)
        code = frame.f_code
    return (code, frame.f_lasti, _actors.get(), names, Nothing, None, 1)


def logged(log: Log, name: str, before: object) -> Log:
    """``log`` with an entry on top, for a value that was set two frames up."""
    actors = _actors.get()
    length = 1 if log is None else log[6] + 1
    if length > _LONGEST:
        log, length = None, 1
    if actors is not None and actors[2]:
        return (None, 0, actors, name, before, log, length)
    frame = _outside(_frame(2))
    return (frame.f_code, frame.f_lasti, actors, name, before, log, length)


def _outside(frame: FrameType) -> FrameType:
    """The first frame from this one up that is no code of this package."""
    while _inside[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return frame
