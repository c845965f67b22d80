"""Reads the text of a config back; see ``_text`` for the grammar.

Lines come in the order of the tree, so what a line belongs to was met before and is found by its path at once. A field
that the text doesn't mention gets its default at the end, or when a line reaches into it. Containers are filled item by
item and put in their place, checked, when everything in them is there.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import NamedTuple, cast

from ._callables import class_for_call, class_for_partial
from ._config import Config, ConfigMeta, blank
from ._errors import ConfigError, NoMatchError, TextError, nearest
from ._fields import ABSENT, REQUIRED
from ._modifier import class_for_modifier
from ._names import import_by_name
from ._text import OPEN, split_last
from ._tree import path_prefix, read_step, set_at, steps_of

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.ASCII)
_WORDS = {"True": True, "False": False, "None": None}


def loads(text: str) -> Config[object]:
    """The config that ``dumps`` wrote. Fields that the text doesn't mention have their defaults.

    It imports the modules that the text names, so load only texts that you trust.

    Raises:
        TextError: The text is no config; the message names the line.
    """
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if line.startswith("#") or not line.strip():
            continue
        try:
            reader.take(line, number)
        except ConfigError as e:
            raise TextError(f"line {number}: {line!r}: {e}") from e
    return reader.finish()


class Composite:
    """A container or a dataclass whose parts stand in lines of their own."""

    def __init__(self, make: Callable[[list[object]], object], keys: list[str]) -> None:
        self.make = make
        self.keys = keys
        self.items: list[object] = [OPEN] * len(keys)

    def made(self) -> object:
        """The value; composites among the parts are made first."""
        for key, item in zip(self.keys, self.items, strict=True):
            if item is OPEN:
                raise TextError(f"there is no line for its part {key.removeprefix('.')}")
        items = [item.made() if isinstance(item, Composite) else item for item in self.items]
        try:
            return self.make(items)
        except (TypeError, ValueError) as e:  # of a dataclass that refuses
            raise TextError(str(e)) from e


class _Place(NamedTuple):
    composite: Composite
    position: int


class _Waiting(NamedTuple):
    owner: Config[object]
    name: str
    composite: Composite
    line: str


class _Reader:
    def __init__(self) -> None:
        self._known: dict[str, object] = {}
        self._classes: dict[str, type[Config[object]]] = {}
        self._configs: dict[str, Config[object]] = {}
        self._places: dict[str, _Place] = {}
        self._waiting: list[_Waiting] = []
        self._opened: dict[int, set[str]] = {}
        self._fresh: list[Config[object]] = []

    def take(self, line: str, number: int) -> None:
        path, sign, text = line.partition(" = ")
        if "'" in path or '"' in path:  # a key, which may contain the sign
            path = path_prefix(line)
            text = line[len(path) :]
            sign, text = text[:3], text[3:]
        if sign != " = ":
            raise TextError("expected `path = value`")
        value = self._value(text)
        if path == ".":
            if not isinstance(value, Config) or self._configs:
                raise TextError("the first line, and no other, names the root config")
            path = ""
        elif not self._configs:
            raise TextError("the first line names the root config: `. = new module:Class`")
        else:
            self._put(path, value, f"line {number}: {line!r}")
        if isinstance(value, Config):
            self._configs[path] = value
            self._fresh.append(value)
        elif isinstance(value, Composite):
            self._places.update((path + key, _Place(value, i)) for i, key in enumerate(value.keys))

    def _value(self, text: str) -> object:
        """What ``parse_value`` gives, parsed once for equal texts: values never change, and configs begin empty."""
        if text in self._known:
            return self._known[text]
        if text in self._classes:
            return blank(self._classes[text])
        value = parse_value(text)
        if isinstance(value, Config):
            self._classes[text] = type(value)
        elif not isinstance(value, Composite):
            self._known[text] = value
        return value

    def finish(self) -> Config[object]:
        if not self._configs:
            raise TextError("there is no config in an empty text")
        for owner, name, composite, line in reversed(self._waiting):
            try:
                owner._store(name, composite.made(), owned=True)
            except ConfigError as e:
                raise TextError(f"{line}: {e}") from e
        for config in self._fresh:
            for name in type(config).__ax_fields__:
                self._fill(config, name)
        return self._configs[""]

    def _put(self, path: str, value: object, line: str) -> None:
        place = self._places.get(path)
        if place is not None:
            place.composite.items[place.position] = value
            return
        above, name = split_last(path)
        if name.startswith("["):  # an item of a container that has its default
            root = self._configs[""]
            self._reach(above)
            set_at(root, path, value)
            return
        owner = self._configs.get(above) or self._reach(above)
        if not isinstance(owner, Config):
            raise NoMatchError(f"{above} is no config")
        if value is OPEN:
            if name not in type(owner).__ax_fields__:
                getattr(owner, name)
            self._opened.setdefault(id(owner), set()).add(name)
            owner.__dict__.pop(name, None)
        elif isinstance(value, Composite):
            self._waiting.append(_Waiting(owner, name, value, line))
        else:
            owner._store(name, value, owned=True)

    def _reach(self, path: str) -> object:
        """What stands at a path that no line named: it is in somebody's default."""
        if path in self._configs:
            return self._configs[path]
        place = self._places.get(path)
        if place is not None:
            return place.composite.items[place.position]
        above, name = split_last(path)
        node = self._reach(above)
        if isinstance(node, Config):
            self._fill(node, name)
        steps = steps_of(name)
        if len(steps) != 1:
            raise NoMatchError(f"{path!r} is no path")
        found = read_step(node, steps[0], path)
        if isinstance(found, Config):
            self._configs[path] = found
        return found

    def _fill(self, config: Config[object], name: str) -> None:
        if name in type(config).__ax_fields__ and name not in self._opened.get(id(config), ()):
            _set_default(config, name)


def with_defaults(config: Config[object]) -> Config[object]:
    """The config itself, which ``parse_value`` gave, with its defaults set."""
    for name in type(config).__ax_fields__:
        _set_default(config, name)
    return config


def _set_default(config: Config[object], name: str) -> None:
    info = type(config).__ax_fields__[name]
    if name in config.__dict__:
        return
    if info.default_factory is not None:
        config._store(name, info.default_factory(), owned=True)
    elif info.default is not ABSENT and info.default is not REQUIRED:
        config._store(name, info.default, owned=True)


def _new(rest: str) -> object:
    cls = import_by_name(rest)
    if not isinstance(cls, ConfigMeta):
        raise TextError(f"{rest} is no config class")
    return blank(cast("type[Config[object]]", cls))


def _of_function(
    class_for: Callable[[Callable[..., object]], type[Config[object]]],
) -> Callable[[str], object]:
    def parse(rest: str) -> object:
        fn = import_by_name(rest)
        if not callable(fn):
            raise TextError(f"{rest} is not callable")
        return blank(class_for(fn))

    return parse


def _enum(rest: str) -> object:
    name, _, by_value = rest.partition(" ")
    owner, _, members = (name, "", "") if by_value else name.rpartition(".")
    cls = import_by_name(owner)
    if not (isinstance(cls, type) and issubclass(cls, enum.Enum)):
        raise TextError(f"{owner} is no enum")
    if by_value:
        return cls(_literal(by_value))
    found: list[enum.Enum] = []
    for member in members.split("|"):
        if member not in cls.__members__:
            raise TextError(f"{owner} has no member {member!r}; {nearest(member, cls.__members__)}")
        found.append(cls[member])
    if len(found) > 1 and issubclass(cls, enum.Flag):
        return cls(sum({cast("int", each.value) for each in found}))
    return found[0]


def _data(rest: str) -> object:
    import dataclasses

    name, _, inside = rest.partition(" ")
    cls = import_by_name(name)
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise TextError(f"{name} is no dataclass")

    if inside:
        return cls(**cast("dict[str, object]", _literal(inside)))
    names = [f.name for f in dataclasses.fields(cls) if f.init]
    return Composite(lambda items: cls(**dict(zip(names, items, strict=True))), [f".{n}" for n in names])


def _dtype(rest: str) -> object:
    import importlib

    numpy = importlib.import_module("numpy")
    described = _literal(rest) if rest.startswith(("[", "{", "(")) else rest
    try:
        return cast("object", numpy.dtype(described))
    except TypeError as e:
        try:
            importlib.import_module("ml_dtypes")  # makes bfloat16 and its kin known to numpy
            return cast("object", numpy.dtype(described))
        except (ImportError, TypeError):
            raise TextError(f"numpy knows no dtype {rest!r}") from e


def _float(rest: str) -> object:
    try:
        return float(rest)
    except ValueError:
        raise TextError(f"{rest!r} is no float") from None


def _items(rest: str) -> list[str]:
    if not rest.isdecimal():
        raise TextError(f"expected a number of items, got {rest!r}")
    return [f"[{i}]" for i in range(int(rest))]


def _dict(rest: str) -> object:
    keys = _literal(rest)
    if not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
        raise TextError(f"expected a list of keys, got {rest!r}")
    return Composite(lambda items: dict(zip(keys, items, strict=True)), [f"[{key!r}]" for key in keys])


KINDS: dict[str, Callable[[str], object]] = {
    "new": _new,
    "call": _of_function(class_for_call),
    "partial": _of_function(class_for_partial),
    "modify": _of_function(class_for_modifier),
    "name": import_by_name,
    "enum": _enum,
    "data": _data,
    "dtype": _dtype,
    "float": _float,
    "tuple": lambda rest: Composite(tuple, _items(rest)),
    "list": lambda rest: Composite(list, _items(rest)),
    "dict": _dict,
}
"""What follows the first word of a text that is no literal."""


def parse_value(text: str) -> object:
    """The value of one line's text: the value itself, a config without its fields, a ``Composite``, or ``OPEN``."""
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("-").isdigit() else float(text)
    if text in _WORDS:
        return _WORDS[text]
    if text == "open":
        return OPEN
    kind, _, rest = text.partition(" ")
    if kind in KINDS and rest:
        try:
            return KINDS[kind](rest)
        except ConfigError:
            raise
        except (TypeError, ValueError, ImportError) as e:  # of an enum, a dataclass, a dtype that refuses
            raise TextError(f"{text}: {e}") from e
    if text[:1] == "'" and text[-1:] == "'" and "\\" not in text and text.count("'") == 2:
        return text[1:-1]
    return _literal(text)


def _literal(text: str) -> object:
    import ast

    try:
        return cast("object", ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError) as e:
        raise TextError(f"not a value: {text}") from e
