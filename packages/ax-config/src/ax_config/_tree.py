"""Paths and selections: find, read, set and replace parts of a tree without knowing what lies between.

A path is what errors print: field names joined by dots, items of tuples, lists and dicts in brackets
(``model.stack.layers[0].norm``, ``evaluators['validation'].every``). A *target* selects configs: a class (of configs, or
one that configs build), a glob over paths (``*`` within a name, ``**`` over any number of them), or a predicate.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar, cast

from ._config import Config, ConfigMeta, configs_in
from ._errors import NoMatchError, nearest

ConfigT = TypeVar("ConfigT", bound=Config[object])
Target: TypeAlias = type | str | Callable[[Config[object]], bool]
"""What selects configs in a tree: a class, a path glob, or a predicate."""


def walk(config: Config[object]) -> Iterator[tuple[str, Config[object]]]:
    """Every config of the tree with its path, parents before children; the root's path is empty."""
    yield "", config
    for name in type(config).__ax_fields__:
        for key, child in configs_in(config.__dict__.get(name), name):
            for path, node in walk(child):
                yield (f"{key}.{path}" if path else key), node


def leaves(config: Config[object]) -> Iterator[tuple[str, object]]:
    """Every value that holds no config, with its path."""
    for path, node in walk(config):
        for name in type(node).__ax_fields__:
            value = node.__dict__.get(name)
            if name in node.__dict__ and not any(configs_in(value, "")):
                yield (f"{path}.{name}" if path else name), value


_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_STEP = re.compile(rf"\.?(?P<name>[^.\[\]=\s]+)|\[(?:(?P<quoted>{_QUOTED})|(?P<item>[^\]'\"]*))\]")
_PATH = re.compile(rf"(?:\.?[^.\[\]=\s]+|\[(?:{_QUOTED}|[^\]'\"]*)\])+")


def path_prefix(text: str) -> str:
    """The longest path that ``text`` begins with."""
    match = _PATH.match(text)
    return match[0] if match else ""


def steps_of(path: str) -> list[str | int]:
    """The steps of a path: names, indices, and keys of dicts marked by a leading bracket."""
    import ast

    steps: list[str | int] = []
    end = 0
    for match in _STEP.finditer(path):
        if match.start() != end:
            break
        end = match.end()
        if match["name"] is not None:
            steps.append(match["name"])
        elif match["quoted"] is not None:
            steps.append("[" + ast.literal_eval(match["quoted"]))
        elif match["item"].removeprefix("-").isdigit():
            steps.append(int(match["item"]))
        else:
            steps.append("[" + match["item"])
    if end != len(path):
        raise NoMatchError(f"{path!r} is no path: names joined by dots, items in brackets")
    return steps


def read_step(node: object, step: str | int, path: str) -> object:
    """What stands one step below ``node``; ``path`` is for messages."""
    if isinstance(node, Config):
        if isinstance(step, int) or step.startswith("["):
            raise NoMatchError(f"{path}: {step!r} asks for an item, but there stands a {type(node).__qualname__}")
        return getattr(node, step)
    if isinstance(step, int):
        if not isinstance(node, tuple | list) or not -len(node) <= step < len(node):
            raise NoMatchError(f"{path}: no item [{step}] in {node!r}")
        return node[step]
    if isinstance(node, dict):
        key = step.removeprefix("[")
        if key not in node:
            raise NoMatchError(f"{path}: no item {key!r}; {nearest(key, node)}")
        return node[key]
    raise NoMatchError(f"{path}: nothing is called {step!r} below a value of type {type(node).__qualname__}")


def get_at(config: Config[object], path: str) -> object:
    """The value at ``path``; the tree itself for the empty path."""
    return functools.reduce(lambda node, step: read_step(node, step, path), steps_of(path), cast("object", config))


def set_at(config: Config[object], path: str, value: object) -> None:
    """Set the value at ``path`` in place, checked as an assignment is."""
    steps = steps_of(path)
    if not steps:
        raise NoMatchError("the root of a tree can't be set; use the new tree instead")
    trail: list[object] = [config]
    for step in steps[:-1]:
        trail.append(read_step(trail[-1], step, path))
    for step, node in zip(reversed(steps), reversed(trail), strict=True):
        if isinstance(node, Config):
            if isinstance(step, int) or step.startswith("["):
                read_step(node, step, path)
            setattr(node, cast("str", step), value)
            return
        read_step(node, step, path)
        if isinstance(node, dict):
            value = {**node, cast("str", step).removeprefix("["): value}
        else:
            items = list(cast("list[object] | tuple[object, ...]", node))
            items[cast("int", step)] = value
            value = items if isinstance(node, list) else tuple(items)


@functools.lru_cache(maxsize=1024)
def _glob(pattern: str) -> re.Pattern[str]:
    out = ""
    for token in re.findall(r"\*\*\.?|\*|\?|[^*?]+", pattern):
        if token == "**.":
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


def _selects(target: Target, path: str, node: Config[object]) -> bool:
    if isinstance(target, str):
        return matches(target, path)
    if isinstance(target, ConfigMeta):
        return isinstance(node, target)
    if isinstance(target, type):
        built = type(node).__ax_target__
        return isinstance(built, type) and issubclass(built, target)
    return target(node)


def describes(target: Callable[..., object]) -> Callable[[Config[object]], bool]:
    """The predicate that selects configs of calls, or partial calls, of a function: ``describes(optax.adamw)``."""
    return lambda node: type(node).__ax_target__ is target


def select(config: Config[object], target: Target) -> list[tuple[str, Config[object]]]:
    """The configs that ``target`` selects, with their paths."""
    return [(path, node) for path, node in walk(config) if _selects(target, path, node)]


def selected(config: Config[object], target: Target) -> list[tuple[str, Config[object]]]:
    """What ``select`` gives, where nothing would be a mistake.

    Raises:
        NoMatchError: ``target`` selects nothing; the message has the nearest paths or classes.
    """
    found = select(config, target)
    if not found:
        wanted = target if isinstance(target, str) else getattr(target, "__qualname__", repr(target))
        paths, kinds = [p for p, _ in walk(config) if p], [type(node).__qualname__ for _, node in walk(config)]
        among = nearest(wanted, paths if isinstance(target, str) else kinds)
        raise NoMatchError(f"{wanted} selects nothing in {type(config).__qualname__}; {among}")
    return found


def replace(
    config: ConfigT,
    target: Target,
    new: Config[object] | Callable[[Config[object]], Config[object]],
) -> ConfigT:
    """A new tree in which every config that ``target`` selects is ``new``, or ``new(old)``.

    Interface fields that parents fill at ``build`` are open in both, so nothing has to be carried over. Selected configs
    inside selected ones are replaced with them.

    Raises:
        NoMatchError: ``target`` selected nothing.
    """
    tree = config.clone()
    done: list[str] = []
    for path, node in selected(tree, target):
        if any(path.startswith((f"{above}.", f"{above}[")) or above == "" for above in done):
            continue
        done.append(path)
        fresh = new(node) if not isinstance(new, Config) else new
        if path == "":
            return cast("ConfigT", fresh.clone())
        set_at(tree, path, fresh)
    return tree
