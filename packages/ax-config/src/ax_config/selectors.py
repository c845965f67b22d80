"""Selectors: what picks configs out of a tree.

A *target* is a class (of configs, or one that configs build), a glob over paths (``*`` within a name, ``**`` over any number
of them), or a predicate. The predicates here are configs, so that a modifier that holds one has a text:

    role("ffn")           what fills a field whose role is "ffn", whatever it is and wherever it stands
    describes(optax.adam) configs of calls, or partial calls, of a function
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Protocol, TypeAlias

from ._config import Config, ConfigMeta, itself
from ._errors import NoMatchError, nearest
from ._tree import QUOTED, walk


class Predicate(Protocol):
    """Says of a config whether it is meant."""

    def __call__(self, node: Config[object], /) -> bool:
        """Whether ``node`` is selected."""
        ...


Target: TypeAlias = type[object] | str | Callable[[Config[object]], bool]
"""What selects configs in a tree: a class, a path glob, or a predicate."""


class Role(Config[Predicate]):
    """Selects the configs that fill a field of a role; see ``role``."""

    name: str

    def __call__(self, node: Config[object], /) -> bool:
        """Whether ``node`` fills such a field."""
        return role_of(node) == self.name

    def make(self, **extras: object) -> Role:
        """The selector itself."""
        return itself(self, extras)


class Describes(Config[Predicate]):
    """Selects the configs of one function; see ``describes``."""

    function: Callable[..., object]

    def __call__(self, node: Config[object], /) -> bool:
        """Whether ``node`` is a config of the function."""
        return type(node).__ax_target__ is self.function

    def make(self, **extras: object) -> Describes:
        """The selector itself."""
        return itself(self, extras)


def role(name: str, /) -> Role:
    """The predicate that selects what fills the fields of a role, and nothing that merely has the same class.

    A field's role is given by the class that asks for the part, ``field(…, role="ffn")``, and is the field's name where
    nothing is given. So the feed-forwards of a transformer's layers are ``role("ffn")``, and the experts inside a
    mixture, which are of the same class, are not.
    """
    return Role(name=name)


def describes(function: Callable[..., object], /) -> Describes:
    """The predicate that selects configs of calls, or partial calls, of a function: ``describes(optax.adamw)``."""
    return Describes(function=function)


def role_of(node: Config[object]) -> str:
    """The role of the field that a config fills; empty for the root."""
    if node._ax_parent is None:
        return ""
    name = node._ax_key.partition("[")[0]
    return type(node._ax_parent).__ax_fields__[name].role or name


@functools.lru_cache(maxsize=1024)
def _glob(pattern: str) -> re.Pattern[str]:
    out = ""
    for token in re.findall(r"\[\*\]|\*\*\.?|\*|\?|\[|[^*?\[]+", pattern):
        if token == "[*]":
            out += rf"\[(?:{QUOTED}|[^\]]*)\]"
        elif token == "**.":
            out += r"(?:.*[.\]])?"
        elif token == "**":
            out += ".*"
        elif token == "*":
            out += r"[^.\[\]]*"
        elif token == "?":
            out += r"[^.\[\]]"
        else:
            out += re.escape(token)
    return re.compile(out)


def matches(pattern: str, path: str) -> bool:
    """Whether a path glob matches a whole path."""
    return _glob(pattern).fullmatch(path) is not None


def _picks(target: Target, path: str, node: Config[object]) -> bool:
    if isinstance(target, str):
        return matches(target, path)
    if isinstance(target, ConfigMeta):
        return isinstance(node, target)
    if isinstance(target, type):
        made = type(node).__ax_target__
        return isinstance(made, type) and issubclass(made, target)
    return target(node)


def select(config: Config[object], target: Target) -> list[tuple[str, Config[object]]]:
    """The configs that ``target`` selects, with their paths."""
    return [(path, node) for path, node in walk(config) if _picks(target, path, node)]


def selected(config: Config[object], target: Target) -> list[tuple[str, Config[object]]]:
    """What ``select`` gives, where nothing would be a mistake.

    Raises:
        NoMatchError: ``target`` selects nothing; the message has the nearest paths, roles or classes.
    """
    found = select(config, target)
    if not found:
        nodes = list(walk(config))
        if isinstance(target, str):
            wanted, among = target, nearest(target, [path for path, _ in nodes if path])
        elif isinstance(target, Role):
            wanted = f"role({target.name!r})"
            among = nearest(target.name, [role_of(node) for path, node in nodes if path])
        else:
            wanted = getattr(target, "__qualname__", repr(target))
            among = nearest(wanted, [type(node).__qualname__ for _, node in nodes])
        raise NoMatchError(f"{wanted} selects nothing in {type(config).__qualname__}; {among}")
    return found
