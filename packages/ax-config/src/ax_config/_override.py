"""Overrides: ``path=value``, the value read by the field's type.

The path may be a glob: ``model.**.dropout=0.1`` sets every field called dropout below the model, ``layers[*].dim=3`` that of
every item. The value is a Python literal, or a word where the field wants a string, an enum or a dtype; where a field wants
something else, it may be any one-line value of the text's grammar: ``norm=new my.layers:RMSNorm.Config``,
``activation=partial jax.nn:gelu``, ``optimizer=call optax:lion`` and then ``optimizer.b1=0.9``. ``open`` opens a field.
"""

from __future__ import annotations

import enum
import functools
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar, cast

from ._config import Config, path_to
from ._errors import ConfigError, FieldTypeError, NoMatchError, TextError, nearest
from ._fields import REQUIRED
from ._loads import KINDS, Composite, parse_value, with_defaults
from ._names import import_by_name
from ._provenance import acting
from ._text import split_last
from ._tree import get_at, path_prefix, set_at, walk
from ._typecheck import describe
from .selectors import matches

ConfigT = TypeVar("ConfigT", bound=Config[object])

_IMPORT_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Assignment(NamedTuple):
    """One override.

    Attributes:
        path: What to set; may be a glob.
        text: The value as written.
        source: Where it was written, for messages and for ``explain``: ``--set``, ``run.toml``, ``overrides.txt:3``.
        typed: Whether the text is the literal of a value that had a type where it was written (in TOML, JSON).
    """

    path: str
    text: str
    source: str = ""
    typed: bool = False

    def __str__(self) -> str:
        """The source and ``path=value``."""
        return f"{self.source} {self.path}={self.text}".strip()


def assignment(text: str, source: str = "") -> Assignment:
    """The override that ``"path=value"`` says.

    Raises:
        NoMatchError: It says none.
    """
    path = path_prefix(text)
    rest = text[len(path) :].lstrip()
    if not path or not rest.startswith("="):
        raise NoMatchError(f"{f'{source}: ' if source else ''}{text!r}: expected path=value")
    return Assignment(path, rest[1:].strip(), source)


def override(config: ConfigT, assignments: Iterable[str | Assignment]) -> ConfigT:
    """A new tree with each ``"path=value"`` set, in order. See ``overrides`` for those of files and the environment.

    Raises:
        NoMatchError: A path that doesn't exist, with the nearest ones that do.
        FieldTypeError: A value that can't be read as the field's type.
    """
    tree = config.clone()
    for given in assignments:
        each = assignment(given) if isinstance(given, str) else given
        with acting(f"override {each}" if not each.source else str(each), says_all=bool(each.source)):
            _apply(tree, each)
    return tree


def settable_paths(config: Config[object]) -> list[str]:
    """Every path that an override may set: each field of each config in the tree."""
    return [f"{path}.{name}" if path else name for path, node in walk(config) for name in type(node).__ax_fields__]


def matching_paths(config: Config[object], path: str) -> list[str]:
    """The settable paths that a path or a glob means; at least one.

    Raises:
        NoMatchError: There is none, with the nearest ones that there are.
    """
    if "*" in path or "?" in path:
        legal = settable_paths(config)
        if path.endswith("]"):  # items that are configs
            legal += [at for at, _ in walk(config) if at.endswith("]")]
        found = [candidate for candidate in legal if matches(path, candidate)]
        if not found:
            names = {split_last(candidate)[1] for candidate in legal}
            raise NoMatchError(f"{path!r} matches no field; {nearest(split_last(path)[1], names)}")
        return found
    above, name = split_last(path)
    try:
        owner = get_at(config, above)
        if name.startswith("["):
            get_at(config, path)
            return [path]
        if isinstance(owner, Config) and name in type(owner).__ax_fields__:
            return [path]
    except (ConfigError, AttributeError):
        pass  # said better below
    legal = settable_paths(config)
    near = nearest(path, legal)
    if near.startswith("legal names"):
        same = [candidate for candidate in legal if split_last(candidate)[1] == name]
        near = f"did you mean {' or '.join(same[:3])}?" if same else near
    raise NoMatchError(f"there is no {path!r} in the config; {near}")


def _apply(tree: Config[object], each: Assignment) -> None:
    try:
        found = matching_paths(tree, each.path)
    except NoMatchError as e:
        raise NoMatchError(f"{each.source}: {e}" if each.source else str(e)) from None
    for path in found:
        table = _table(each.text)
        if table is not None and (steps := _steps_into(tree, path, table)) is not None:
            for step, text in steps:
                _apply(tree, Assignment(path + step, text, each.source, typed=True))
        else:
            _assign(tree, path, each)


def _table(text: str) -> dict[str, object] | None:
    """The dict that a text is, if it is one: a table of a file, say."""
    if not text.startswith("{"):
        return None
    try:
        value = parse_value(text)
    except TextError:
        return None
    return value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else None


def _steps_into(tree: Config[object], path: str, table: dict[str, object]) -> list[tuple[str, str]] | None:
    """The assignments below ``path`` that a table stands for, if configs are there to take them."""
    above, name = split_last(path)
    owner = get_at(tree, above)
    there = owner.__dict__.get(name) if isinstance(owner, Config) else get_at(tree, path)
    if isinstance(there, Config):
        return [(f".{key}", repr(value)) for key, value in table.items()]
    if isinstance(there, dict) and any(isinstance(item, Config) for item in there.values()):
        return [(f"[{key!r}]", repr(value)) for key, value in table.items()]
    return None


def _assign(tree: Config[object], path: str, each: Assignment) -> None:
    above, name = split_last(path)
    owner = get_at(tree, above)
    hint: object = object
    if isinstance(owner, Config):
        hint = type(owner).hint_of(name)
    problem: ConfigError | None = None
    for reading in _readings(each.text, hint, typed=each.typed):
        try:
            set_at(tree, path, reading())
        except (FieldTypeError, TextError) as e:
            problem = e if problem is None or isinstance(e, TextError) else problem
        else:
            return
    where = path_to(owner, name) if isinstance(owner, Config) else path
    because = f" ({problem})" if isinstance(problem, TextError) else ""
    raise FieldTypeError(
        f"{str(each)!r}: {where} wants {describe(hint)}, and {each.text!r} can't be read as that{because}"
    ) from problem


def _readings(text: str, hint: object, *, typed: bool) -> Iterator[Callable[[], object]]:
    """What a text may mean, the likeliest first. Each makes its value when called, or fails with TextError."""
    if hint is str:
        plain = _literal(text)
        if isinstance(plain, str):
            yield lambda: plain
        elif not typed:
            yield lambda: text
        return
    value = _literal(text)
    if value is not _NO_LITERAL:
        yield lambda: value
        if isinstance(value, float) and value.is_integer() and "e" in text.lower():
            yield lambda: int(value)  # 1e6 steps
    for member in _members(hint):
        if member.name.lower() == text.lower():
            yield functools.partial(_itself, member)
    kind, _, rest = text.partition(" ")
    if kind in KINDS and rest:
        yield lambda: _whole(text)
    if any(getattr(option, "__name__", "") == "dtype" for option in _options(hint)):
        yield lambda: parse_value(f"dtype {text}")
    if not typed:
        yield lambda: text
    if _IMPORT_NAME.fullmatch(text):
        yield lambda: import_by_name(text)
    if text == "open":
        yield lambda: REQUIRED
    if isinstance(value, str):  # as files write what a command line says without quotes
        yield from _readings(value, hint, typed=False)


def _itself(value: object) -> object:
    return value


_NO_LITERAL = object()
_WORDS: dict[str, object] = {"true": True, "false": False, "none": None, "null": None}


def _literal(text: str) -> object:
    import ast

    try:
        return cast("object", ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return float(text)  # inf and nan
    except ValueError:
        return _NO_LITERAL


def _whole(text: str) -> object:
    value = parse_value(text)
    if isinstance(value, Composite):
        raise TextError(f"{text!r} is the first line of several")
    return with_defaults(value) if isinstance(value, Config) else value


def _options(hint: object) -> Iterator[object]:
    """The types that a type is a union of."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for arg in args:
            yield from _options(arg)
    else:
        yield typing.get_origin(hint) or hint


def _members(hint: object) -> Iterator[enum.Enum]:
    for option in _options(hint):
        if isinstance(option, type) and issubclass(option, enum.Enum):
            yield from option
