"""Overrides from a command line, an environment or a file: ``path=value``, the value read by the field's type.

The path may be a glob: ``model.**.dropout=0.1`` sets every field called dropout below the model.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable
from typing import TypeVar, cast

from ._config import Config, path_to
from ._errors import ConfigError, FieldTypeError, NoMatchError, nearest
from ._provenance import acting
from ._tree import get_at, path_prefix, set_at, walk
from ._typecheck import describe
from .selectors import matches

ConfigT = TypeVar("ConfigT", bound=Config[object])


def override(config: ConfigT, assignments: Iterable[str]) -> ConfigT:
    """A new tree with each ``"path=value"`` set.

    Raises:
        NoMatchError: A path that doesn't exist, with the nearest ones that do.
        FieldTypeError: A value that can't be read as the field's type.
    """
    tree = config.clone()
    for text in assignments:
        path = path_prefix(text)
        rest = text[len(path) :].lstrip()
        if not path or not rest.startswith("="):
            raise NoMatchError(f"{text!r}: expected path=value")
        with acting(f"override {text}"):
            for found in _paths(tree, path):
                _assign(tree, found, rest[1:].strip(), text)
    return tree


def settable_paths(config: Config[object]) -> list[str]:
    """Every path that an override may set: each field of each config in the tree."""
    return [f"{path}.{name}" if path else name for path, node in walk(config) for name in type(node).__ax_fields__]


def _paths(tree: Config[object], path: str) -> list[str]:
    legal = settable_paths(tree)
    if path in legal:
        return [path]
    if any(mark in path for mark in "*?"):
        found = [candidate for candidate in legal if matches(path, candidate)]
        if not found:
            raise NoMatchError(
                f"{path!r} matches no field; {nearest(path.rpartition('.')[2], (p.rpartition('.')[2] for p in legal))}"
            )
        return found
    if path.endswith("]"):
        get_at(tree, path)
        return [path]
    near = nearest(path, legal)
    if near.startswith("legal names"):
        last = path.rpartition(".")[2]
        same = [p for p in legal if p.rpartition(".")[2] == last]
        near = f"did you mean {' or '.join(same[:3])}?" if same else near
    raise NoMatchError(f"there is no {path!r} in the config; {near}")


def _assign(tree: Config[object], path: str, text: str, whole: str) -> None:
    owner_path, _, name = path.rpartition(".")
    owner = next((node for at, node in walk(tree) if at == owner_path), None)
    hint: object = object
    if owner is not None and name in type(owner).__ax_fields__:
        hint = type(owner).hint_of(name)
    problem: ConfigError | None = None
    for value in _readings(text, hint):
        try:
            set_at(tree, path, value)
        except FieldTypeError as e:
            problem = problem or e
        else:
            return
    where = path_to(owner, name) if owner is not None else path
    raise FieldTypeError(f"{whole!r}: {where} wants {describe(hint)}, and {text!r} can't be read as that") from problem


def _readings(text: str, hint: object) -> list[object]:
    """What the text may mean, the likeliest first."""
    import ast

    readings: list[object] = []
    try:
        readings.append(cast("object", ast.literal_eval(text)))
    except (ValueError, SyntaxError):
        lowered = {"true": True, "false": False, "none": None, "null": None}
        if text.lower() in lowered:
            readings.append(lowered[text.lower()])
        with contextlib.suppress(ValueError):
            readings.append(float(text))
    if readings and isinstance(readings[0], float) and readings[0].is_integer() and "e" in text.lower():
        readings.append(int(readings[0]))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        readings += [member for member in hint if member.name.lower() == text.lower()]
    if hint is str:
        return [readings[0] if readings and isinstance(readings[0], str) else text]
    return [*readings, text]
