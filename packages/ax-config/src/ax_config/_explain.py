"""``explain``: where a value came from, step by step, newest first, through every part that was replaced on the way."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple, cast

from ._config import Config, configs_in, default_of, same
from ._errors import ConfigError
from ._provenance import Actors, Log, Nothing
from ._replace import Replacement
from ._tree import get_at, read_step, steps_of

_SHOWN = 60


class Step(NamedTuple):
    """One moment in the history of a value."""

    path: str
    """What was set: the value itself, or a part around it."""
    value: str
    """What it was from then on."""
    how: str
    """"set", "given" (to a constructor), "default", "opened", "replaced" (a part around it), or "read" (from a text)."""
    by: tuple[str, ...]
    """The modifiers, replacements and overrides at work, innermost first."""
    where: str
    """File, line and function."""


class Explanation(NamedTuple):
    """The history of the value at a path; ``str`` prints it."""

    path: str
    value: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        """The value, and a line for each step, newest first."""
        lines = [f"{self.path or 'the root'} = {self.value}"]
        for step in self.steps:
            about = f"{step.path} " if step.how == "replaced" else ""
            lines.append(
                f"  {about}{_VERBS[step.how]} {step.value}".rstrip() + (f"  [{step.where}]" if step.where else "")
            )
            lines += [f"      by {who}" for who in step.by]
        return "\n".join(lines)


_VERBS = {
    "set": "set to",
    "given": "given as",
    "default": "default",
    "opened": "opened",
    "replaced": "replaced:",
    "read": "read from a text or a pickle:",
}


def explain(config: Config[object], path: str = "") -> Explanation:
    """Where the value at ``path`` came from: who set it, in which file and line, and what it was before.

    Every config remembers; nothing has to be switched on. A value that was read from a text or a pickle has no more to
    tell than that.

    Raises:
        NoMatchError: There is no such path.
    """
    steps = steps_of(path)
    try:
        value = shown(get_at(config, path))
    except AttributeError:
        if not steps or not _is_field(config, path):
            raise
        value = "open"
    return Explanation(path, value, tuple(_history(config, steps, "")))


def _is_field(config: Config[object], path: str) -> bool:
    above, _, name = path.rpartition(".")
    owner = get_at(config, above)
    return isinstance(owner, Config) and name in type(owner).__ax_fields__


def _history(top: object, steps: list[str | int], prefix: str) -> Iterator[Step]:
    """The history of what stands at ``steps`` below ``top``, which itself stands at ``prefix``."""
    owners = list(_owners(top, steps, prefix))
    if not owners:
        if isinstance(top, Config):
            yield _created(top, prefix)
        return
    owner, path, name, rest = owners[-1]
    yield from _own(owner, path, name, rest)
    target = owner.__dict__.get(name)
    if isinstance(target, Config) and not rest:
        yield _created(target, path)
    for (owner, path, name, rest), (part, *_) in zip(reversed(owners[:-1]), reversed(owners[1:]), strict=True):
        yield from _replaced(owner, path, name, rest, part)


def _owners(
    top: object, steps: list[str | int], prefix: str
) -> Iterator[tuple[Config[object], str, str, list[str | int]]]:
    """The configs on the way, with the path of the field that leads on, its name, and the steps that remain below it."""
    node, path = top, prefix
    for i, step in enumerate(steps):
        if isinstance(node, Config) and isinstance(step, str):
            path = f"{path}.{step}" if path else step
            yield node, path, step, steps[i + 1 :]
            node = node.__dict__.get(step)
        elif node is not None:
            node = read_step(node, step, path)
            path += f"[{step}]" if isinstance(step, int) else f"[{step[1:]!r}]"


def _entries(log: Log) -> Iterator[tuple[CodeType | None, int, Actors, str | tuple[str, ...], object]]:
    while log is not None:
        code, lasti, actors, name, before, log, _ = log
        yield code, lasti, actors, name, before


def _own(owner: Config[object], path: str, name: str, rest: list[str | int]) -> Iterator[Step]:
    """What happened to the field itself, back to the owner's construction."""
    value = owner.__dict__.get(name, Nothing)
    for code, lasti, actors, what, before in _entries(owner._ax_log):
        if what == name:
            how = "opened" if value is Nothing else "set"
            yield Step(path, _at(value, rest), how, _names(actors), place(code, lasti))
            value = before
        elif isinstance(what, tuple) and name in what:
            yield Step(path, _at(value, rest), "given", _names(actors), place(code, lasti))
            return
    if value is Nothing:
        return
    if not same(value, default_of(type(owner), name)):
        yield Step(path, _at(value, rest), "read", (), "")
    else:
        yield Step(path, _at(value, rest), "default", (), _declared(type(owner), name))


def _replaced(owner: Config[object], path: str, name: str, rest: list[str | int], part: object) -> Iterator[Step]:
    """When the field's whole value, which holds what is asked for, was replaced; and what was there before."""
    value = owner.__dict__.get(name, Nothing)
    for code, lasti, actors, what, before in _entries(owner._ax_log):
        if what != name:
            continue
        if not _holds(before, part):
            yield Step(path, f"{shown(before)} → {shown(value)}", "replaced", _names(actors), place(code, lasti))
            with contextlib.suppress(ConfigError, AttributeError):  # nothing of that name in what stood there
                yield from _history(before, rest, path)
        value = before


def _holds(value: object, part: object) -> bool:
    """Whether ``part`` was there already: an item next to it was set."""
    if isinstance(value, tuple | list):
        return any(_holds(item, part) for item in value)
    if isinstance(value, dict):
        return any(_holds(item, part) for item in value.values())
    return value is part


def _created(node: Config[object], path: str) -> Step:
    for code, lasti, actors, what, _ in _entries(node._ax_log):
        if isinstance(what, tuple):
            return Step(path, shown(node), "given", _names(actors), place(code, lasti))
    return Step(path, shown(node), "read", (), "")


def _at(value: object, rest: list[str | int]) -> str:
    for step in rest:
        try:
            value = read_step(value, step, "")
        except (ConfigError, AttributeError):
            return "nothing there"
    return "open" if value is Nothing else shown(value)


def shown(value: object) -> str:
    """A value in a few characters."""
    if value is Nothing:
        return "nothing"
    if isinstance(value, Config):
        return type(value).__qualname__
    text = cast("str", value.__qualname__) if callable(value) and hasattr(value, "__qualname__") else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _names(actors: Actors) -> tuple[str, ...]:
    names = []
    while actors is not None:
        who, actors, _ = actors
        if name := _name_of(who):
            names.append(name)
    return tuple(names)


def _name_of(who: object) -> str:
    if isinstance(who, str):
        return who
    if isinstance(who, Replacement):
        return f"replace: {who.fate}" if who.fate else ""
    if isinstance(who, Config):
        short = {name: value for name, value in who.__dict__.items() if not any(configs_in(value, ""))}
        told = {name: value for name, value in short.items() if not same(value, default_of(type(who), name))}
        values = ", ".join(f"{name}={shown(value)}" for name, value in told.items())
        made = _created(who, "").where
        return f"{type(who).__qualname__}" + (f"({values})" if values else "") + (f"  [{made}]" if made else "")
    code = getattr(who, "__code__", None)
    name = getattr(who, "__qualname__", repr(who))
    return f"{name}  [{_short(code.co_filename)}:{code.co_firstlineno}]" if isinstance(code, CodeType) else str(name)


def place(code: CodeType | None, lasti: int) -> str:
    """The file, line and function of an instruction."""
    if code is None:
        return ""
    line = next((last for start, end, last in code.co_lines() if start <= lasti < end), None)
    inside = "" if code.co_qualname == "<module>" else f" in {code.co_qualname}"
    return f"{_short(code.co_filename)}:{line}{inside}"


def _short(filename: str) -> str:
    """The file from the folder down that it is imported from, or from the current one."""
    import os

    folders = [os.path.join(os.path.abspath(folder), "") for folder in [os.getcwd(), *sys.path]]
    inside = [folder for folder in folders if filename.startswith(folder)]
    return filename[len(max(inside, key=len)) :] if inside else filename


def _declared(cls: type[Config[object]], name: str) -> str:
    """Where a field with its default is written."""
    import inspect
    import re

    definer = next((base for base in cls.__mro__ if name in getattr(base, "__ax_own__", {})), cls)
    subject = definer.__ax_target__ if definer.__ax_kind__ != "new" else definer  # type: ignore[attr-defined]
    try:
        lines, first = inspect.getsourcelines(cast("type", subject))
        filename = inspect.getsourcefile(cast("type", subject)) or ""
    except (OSError, TypeError):
        return cls.__qualname__
    for number, line in enumerate(lines, first):
        if re.match(rf"\s+{re.escape(name)}\s*:", line) or (definer.__ax_kind__ != "new" and name in line):  # type: ignore[attr-defined]
            return f"{_short(filename)}:{number} in {cls.__qualname__}"
    return f"{_short(filename)}:{first} in {cls.__qualname__}"
