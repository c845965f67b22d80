"""The text of a config: one line a value, ``path = value``, in the order of the tree.

It is canonical (equal trees give equal text), reads well in a diff, and gives the tree back exactly (``loads``). Classes
and functions stand under their public import names, so that moving a file inside a package changes no text:

    . = new ax_layers:CausalLM.Config
    dim = 256
    norm = new ax_layers:RMSNorm.Config
    norm.eps = 1e-05
    activation = partial jax.nn:silu

Kinds of values:

| text | value |
|---|---|
| a Python literal | a value made of plain parts |
| ``new module:Class`` | a config; its fields follow |
| ``call``, ``partial`` or ``modify module:function`` | a config of a function; its arguments follow |
| ``name module:thing`` | a class or a function itself |
| ``enum module:Class.MEMBER`` | a member; of flags ``A\\|B``, or ``enum module:Class 5`` by value |
| ``data module:Class {…}`` | a frozen dataclass; without ``{…}`` its fields follow |
| ``dtype bfloat16`` | a ``numpy.dtype`` |
| ``float nan`` | what no literal says |
| ``tuple 2``, ``list 2``, ``dict ['a']`` | a container; its items follow |
| ``open`` | a field that has a default but was opened |
"""

from __future__ import annotations

import enum
import math
from typing import NamedTuple, TypeAlias, cast

from ._config import Config, is_dataclass, is_dtype, path_of
from ._errors import NoMatchError, TextError
from ._fields import ABSENT, REQUIRED
from ._names import import_name
from ._tree import path_prefix

Part: TypeAlias = tuple[str, object]
"""What stands below a value: the step that leads there, ``".name"`` or ``"[0]"``, and what is there."""

PLAIN: frozenset[type] = frozenset((bool, int, str, bytes, type(None)))
"""Types whose ``repr`` is their text."""


class Plan(NamedTuple):
    """What the writer knows of a config class."""

    head: str
    fields: tuple[tuple[str, bool], ...]
    """Each field, and whether its absence is worth a line."""


class Writer:
    """Makes the lines of values. It looks an import name up once, and lives as long as one text takes."""

    def __init__(self) -> None:
        self._plans: dict[type, Plan] = {}
        self._names: dict[int, tuple[object, str]] = {}
        self._dataclasses: dict[type, tuple[str, ...]] = {}

    def plan(self, cls: type[Config[object]]) -> Plan:
        """How configs of a class are written."""
        plan = self._plans.get(cls)
        if plan is None:
            head = f"{cls.__ax_kind__} {self.name(cls if cls.__ax_kind__ == 'new' else cls.__ax_target__)}"
            fields = cls.__ax_fields__.items()
            announced = ((n, f.default_factory is not None or f.default not in (ABSENT, REQUIRED)) for n, f in fields)
            plan = self._plans[cls] = Plan(head, tuple(announced))
        return plan

    def name(self, thing: object) -> str:
        """The import name of a class or function."""
        known = self._names.get(id(thing))
        if known is None:
            known = self._names[id(thing)] = (thing, import_name(thing))  # held, so that its id stays its own
        return known[1]

    def told(self, value: object) -> tuple[str, list[Part]]:
        """The text of a value, and the parts that follow it in lines of their own."""
        kind = type(value)
        if kind in PLAIN:
            return repr(value), []
        if isinstance(value, Config):
            values = value.__dict__
            head, fields = self.plan(type(value))
            return head, [(f".{name}", values.get(name, OPEN)) for name, told in fields if told or name in values]
        if isinstance(value, enum.Enum):
            return self._enum(value), []
        if isinstance(value, float):
            return float.__repr__(value) if math.isfinite(value) else f"float {float(value)!r}", []
        if isinstance(value, tuple | list):
            text = literal(value)
            if text is not None:
                return text, []
            items = [(f"[{i}]", item) for i, item in enumerate(value)]
            return f"{'list' if isinstance(value, list) else 'tuple'} {len(value)}", items
        if isinstance(value, dict):
            text = literal(value)
            if text is not None:
                return text, []
            return f"dict {list(value)!r}", [(f"[{key!r}]", item) for key, item in value.items()]
        if value is OPEN:
            return "open", []
        if is_dtype(value):
            return f"dtype {value}", []
        if is_dataclass(value):
            values = self.fields(value)
            text = literal(values)
            head = f"data {self.name(kind)}"
            return (head, [(f".{k}", v) for k, v in values.items()]) if text is None else (f"{head} {text}", [])
        return f"name {self.name(value)}", []

    def fields(self, value: object) -> dict[str, object]:
        """What the constructor of a dataclass takes to give ``value`` again."""
        names = self._dataclasses.get(type(value))
        if names is None:
            import dataclasses

            fields = dataclasses.fields(value)  # type: ignore[arg-type]  # the caller saw that it is a dataclass
            names = self._dataclasses[type(value)] = tuple(f.name for f in fields if f.init)
        return {name: getattr(value, name) for name in names}

    def lines(self, path: str, value: object, out: list[tuple[str, str]]) -> None:
        """Append the lines of ``value``."""
        kind = type(value)
        plan = self._plans.get(kind)
        if plan is None:
            try:
                head, parts = self.told(value)
            except TextError as e:
                raise TextError(f"{path}: {e}") from None
            if not isinstance(value, Config):
                out.append((path, head))
                for step, item in parts:
                    self.lines(path + step, item, out)
                return
            plan = self._plans[kind]
        # Nearly all time goes here, hence the plain values in line.
        out.append((path, plan.head))
        prefix = "" if path == "." else f"{path}."
        values = cast("Config[object]", value).__dict__
        for name, announced in plan.fields:
            if name in values:
                item = values[name]
                if type(item) in PLAIN:
                    out.append((prefix + name, repr(item)))
                else:
                    self.lines(prefix + name, item, out)
            elif announced:
                out.append((prefix + name, "open"))

    def _enum(self, value: enum.Enum) -> str:
        known = self._names.get(id(value))
        if known is None:
            name = cast("str | None", value.name)  # a flag of no members has none
            named = name is not None and all(part in type(value).__members__ for part in name.split("|"))
            member = f".{name}" if named else f" {value.value!r}"
            known = self._names[id(value)] = (value, f"enum {self.name(type(value))}{member}")
        return known[1]


class _Open:
    def __repr__(self) -> str:
        return "open"


OPEN = _Open()
"""Stands where a field has a default but was opened."""


def literal(value: object) -> str | None:
    """The Python literal of a value made of plain parts, else None."""
    if type(value) in PLAIN:
        return repr(value)
    if isinstance(value, enum.Enum):
        return None
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else None
    if isinstance(value, tuple | list):
        texts = []
        for item in value:
            text = literal(item)
            if text is None:
                return None
            texts.append(text)
        inside = ", ".join(texts)
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(texts) == 1 else f"({inside})"
    if isinstance(value, dict):
        texts = []
        for key, item in value.items():
            text = literal(item)
            if text is None:
                return None
            texts.append(f"{key!r}: {text}")
        return f"{{{', '.join(texts)}}}"
    return None


def split_last(path: str) -> tuple[str, str]:
    """A path without its last step, and that step: ``"a.b"`` and ``"c"``, ``"a.b"`` and ``"[0]"``."""
    if not path.endswith("]"):
        above, _, name = path.rpartition(".")
        return above, name
    cut = path.rfind("[")
    while cut >= 0 and path_prefix(path[:cut]) != path[:cut]:  # a bracket inside a quoted key
        cut = path.rfind("[", 0, cut)
    if cut < 0:
        raise NoMatchError(f"{path!r} is no path: names joined by dots, items in brackets")
    return path[:cut], path[cut:]


def text_of(value: object) -> str:
    """The text of one value in one line; of a config or a container, without what stands below it."""
    return Writer().told(value)[0]


def _lines(config: Config[object]) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    try:
        Writer().lines(".", config, out)
    except TextError as e:
        raise TextError(f"{path_of(config) or type(config).__qualname__}: {e}") from None
    return out


def flatten(config: Config[object]) -> dict[str, str]:
    """The lines of ``dumps`` as a mapping from path to text, in order; the root's path is ``"."``."""
    return dict(_lines(config))


def dumps(config: Config[object]) -> str:
    """The canonical text of a config.

    Raises:
        TextError: A value can't be imported by name.
    """
    return "".join([f"{path} = {text}\n" for path, text in _lines(config)])


def fingerprint(config: Config[object]) -> str:
    """A short name for the content of a config: equal for equal trees, on every machine. 16 hex digits."""
    import hashlib

    return hashlib.sha256(dumps(config).encode()).hexdigest()[:16]
