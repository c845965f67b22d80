"""Paths: go over a tree, and read and set its parts without knowing what lies between.

A path is what errors print: field names joined by dots, items of tuples, lists and dicts in brackets
(``model.stack.layers[0].norm``, ``evaluators['validation'].every``).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

from ._config import EXACT, Config, configs_in, same
from ._errors import NoMatchError, nearest

ConfigT = TypeVar("ConfigT", bound=Config[object])


def walk(config: Config[object]) -> Iterator[tuple[str, Config[object]]]:
    """Every config of the tree with its path, parents before children; the root's path is empty."""
    stack = [("", config)]
    while stack:
        path, node = stack.pop()
        yield path, node
        children: list[tuple[str, Config[object]]] = []
        prefix, values = f"{path}." if path else "", node.__dict__
        for name in type(node).__ax_fields__:
            value = values.get(name)
            if isinstance(value, Config):
                children.append((prefix + name, value))
            elif type(value) not in EXACT:
                children += configs_in(value, prefix + name)
        children.reverse()
        stack += children


def leaves(config: Config[object]) -> Iterator[tuple[str, object]]:
    """Every value that is set and holds no config, with its path."""
    for path, node in walk(config):
        prefix, values = f"{path}." if path else "", node.__dict__
        for name in type(node).__ax_fields__:
            if name in values and (type(values[name]) in EXACT or not any(configs_in(values[name], ""))):
                yield prefix + name, values[name]


QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_STEP = re.compile(rf"\.?(?P<name>[^.\[\]=\s]+)|\[(?:(?P<quoted>{QUOTED})|(?P<item>[^\]'\"]*))\]")
_PATH = re.compile(rf"(?:\.?[^.\[\]=\s]+|\[(?:{QUOTED}|[^\]'\"]*)\])+")


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
            try:
                steps.append("[" + ast.literal_eval(match["quoted"]))
            except (SyntaxError, ValueError):
                raise NoMatchError(f"{path!r} is no path: {match['quoted']} is no string") from None
        elif match["item"].removeprefix("-").isdecimal():
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


def map_values(config: ConfigT, fn: Callable[[str, object], object]) -> ConfigT:
    """A new tree with ``fn(path, value)`` in place of every value that is set and holds no config."""
    tree = config.clone()
    for path, value in list(leaves(tree)):
        fresh = fn(path, value)
        if not same(fresh, value):
            set_at(tree, path, fresh)
    return tree
