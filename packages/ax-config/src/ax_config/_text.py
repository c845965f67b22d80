"""The text of a config: one line a value, ``path = value``, in the order of the tree.

It is canonical (equal trees give equal text), reads well in a diff, and gives the tree back exactly. Classes and
functions stand under their public import names, so that moving a file inside a package changes no text:

    . = new ax_layers:CausalLM.Config
    dim = 256
    norm = new ax_layers:RMSNorm.Config
    norm.eps = 1e-05
    activation = partial jax.nn:silu

Kinds of values: Python literals; ``new`` a config; ``call`` and ``partial`` a config of a function; ``name`` a class or
a function itself; ``enum`` a member; ``data`` a frozen dataclass; ``tuple``, ``list`` and ``dict`` with their size, whose
items follow; ``open`` a field that has a default but was opened.
"""

from __future__ import annotations

import enum
import importlib
import math
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from ._callables import CallConfig, PartialConfig, class_for_call, class_for_partial
from ._config import Config, ConfigMeta, is_dataclass, path_of
from ._errors import ConfigError, TextError
from ._fields import ABSENT, REQUIRED
from ._tree import get_at, path_prefix, read_step, set_at, steps_of

_PLAIN = (bool, int, str, bytes, type(None))


def import_name(thing: object) -> str:
    """``"package:Name"`` of a class or function, by the outermost public module that offers it.

    Raises:
        TextError: It can't be imported by a name (a lambda, a local class).
    """
    module, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise TextError(f"{thing!r} has no import name")
    parts = module.split(".")
    own = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    public = [name for name in own if not _is_private(name)]
    if len(public) < len(own):  # it lives in a private module; its package may offer it anywhere
        family = [name for name in list(sys.modules) if name.startswith(f"{parts[0]}.") and not _is_private(name)]
        public += sorted(family, key=lambda name: (name.count("."), name))
    for name in [*public, module]:
        if _lookup(sys.modules.get(name), qualname) is thing:
            return f"{name}:{qualname}"
    raise TextError(f"{module}:{qualname} can't be imported under that name, so it has no text; define it in a module")


def _is_private(module: str) -> bool:
    return any(part.startswith("_") and part != "__main__" for part in module.split("."))


def import_by_name(name: str) -> object:
    """The class or function that ``import_name`` named."""
    module, _, qualname = name.partition(":")
    try:
        found = _lookup(importlib.import_module(module), qualname)
    except ImportError as e:
        raise TextError(f"{name}: {e}") from e
    if found is None:
        raise TextError(f"{name}: module {module} has no {qualname}")
    return found


def _lookup(root: object, qualname: str) -> object:
    for part in qualname.split("."):
        root = getattr(root, part, None)
        if root is None:
            return None
    return root


def _literal(value: object) -> str | None:
    """The Python literal of a value made of plain parts, else None."""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, _PLAIN) and not isinstance(value, enum.Enum):
        return repr(value)
    if isinstance(value, tuple | list):
        items = [_literal(item) for item in value]
        if any(item is None for item in items):
            return None
        inside = ", ".join(cast("list[str]", items))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(items) == 1 else f"({inside})"
    if isinstance(value, dict):
        pairs = [(repr(k), _literal(v)) for k, v in value.items()]
        return None if any(v is None for _, v in pairs) else "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
    return None


def _lines(path: str, value: object) -> Iterator[tuple[str, str]]:
    text = _literal(value)
    if text is not None:
        yield path, text
    elif isinstance(value, float):
        yield path, f"float {value}"
    elif isinstance(value, Config):
        yield path, _head(value)
        prefix = "" if path == "." else f"{path}."
        for name, info in type(value).__ax_fields__.items():
            if name in value.__dict__:
                yield from _lines(prefix + name, value.__dict__[name])
            elif info.default_factory is not None or info.default not in (ABSENT, REQUIRED):
                yield prefix + name, "open"
    elif isinstance(value, tuple | list):
        yield path, f"{'list' if isinstance(value, list) else 'tuple'} {len(value)}"
        for i, item in enumerate(value):
            yield from _lines(f"{path}[{i}]", item)
    elif isinstance(value, dict):
        yield path, f"dict {list(value)!r}"
        for k, item in value.items():
            yield from _lines(f"{path}[{k!r}]", item)
    elif isinstance(value, enum.Enum):
        yield path, f"enum {import_name(type(value))}.{value.name}"
    elif is_dataclass(value):
        parts = _init_values(value)
        literal = _literal(parts)
        if literal is None:
            raise TextError(f"{path}: the fields of {type(value).__qualname__} are not all plain values: {value!r}")
        yield path, f"data {import_name(type(value))} {literal}"
    else:
        yield path, f"name {import_name(value)}"


def _init_values(value: object) -> dict[str, object]:
    import dataclasses

    fields = dataclasses.fields(value)  # type: ignore[arg-type]  # the caller saw that it is a dataclass
    return {f.name: getattr(value, f.name) for f in fields if f.init}


def _head(config: Config[object]) -> str:
    cls = type(config)
    if isinstance(config, CallConfig):
        return f"call {import_name(cls.__ax_target__)}"
    if isinstance(config, PartialConfig):
        return f"partial {import_name(cls.__ax_target__)}"
    return f"new {import_name(cls)}"


def flatten(config: Config[object]) -> dict[str, str]:
    """The lines of ``dumps`` as a mapping from path to text, in order; the root's path is ``"."``."""
    try:
        return dict(_lines(".", config))
    except TextError as e:
        raise TextError(f"{path_of(config) or type(config).__qualname__}: {e}") from None


def dumps(config: Config[object]) -> str:
    """The canonical text of a config.

    Raises:
        TextError: A value can't be imported by name.
    """
    return "".join(f"{path} = {text}\n" for path, text in flatten(config).items())


def fingerprint(config: Config[object]) -> str:
    """A short name for the content of a config: equal for equal trees, on every machine. 16 hex digits."""
    import hashlib

    return hashlib.sha256(dumps(config).encode()).hexdigest()[:16]


def loads(text: str) -> Config[object]:
    """The config that ``dumps`` wrote. Fields that the text doesn't mention have their defaults.

    Raises:
        TextError: The text is no config; the message names the line.
    """
    root: Config[object] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        path = "." if line.startswith(". ") else path_prefix(line)
        rest = line[len(path) :]
        value_text = rest.removeprefix(" = ")
        try:
            if value_text == rest:
                raise TextError("expected `path = value`")
            value = _parse(value_text)
            if path == ".":
                if not isinstance(value, Config):
                    raise TextError("the first line names the root config")
                root = value
            elif root is None:
                raise TextError("the first line names the root config: `. = new module:Class`")
            elif value is _OPEN:
                parent, name = _split(root, path)
                parent.__dict__.pop(name, None)
            elif isinstance(value, _Sized):
                _set_unchecked(root, path, value.container)
            elif path.endswith("]"):
                _set_unchecked(root, path, value)
            else:
                set_at(root, path, value)
        except ConfigError as e:
            raise TextError(f"line {number}: {line!r}: {e}") from e
    if root is None:
        raise TextError("there is no config in an empty text")
    return root.clone()


class _Sized(NamedTuple):
    container: list[object] | tuple[object, ...] | dict[str, object]


_OPEN = object()


def _split(root: Config[object], path: str) -> tuple[Config[object], str]:
    above, _, name = path.rpartition(".")
    return cast("Config[object]", get_at(root, above)), name


def _set_unchecked(root: Config[object], path: str, value: object) -> None:
    """Set an item of a container that is still being filled; the container was checked when it was written."""
    steps = steps_of(path)
    trail: list[object] = [root]
    for step in steps[:-1]:
        trail.append(read_step(trail[-1], step, path))
    for step, node in zip(reversed(steps), reversed(trail), strict=True):
        if isinstance(node, Config):
            node.__dict__[cast("str", step)] = value
            return
        if isinstance(node, dict):
            value = {**node, cast("str", step).removeprefix("["): value}
        else:
            items = list(cast("list[object] | tuple[object, ...]", node))
            items[cast("int", step)] = value
            value = items if isinstance(node, list) else tuple(items)


def _blank(cls: ConfigMeta) -> Config[object]:
    """A config with its defaults, its required fields open."""
    node = object.__new__(cast("type[Config[object]]", cls))
    object.__setattr__(node, "_ax_parent", None)
    object.__setattr__(node, "_ax_key", "")
    for name, info in cls.__ax_fields__.items():
        if info.default_factory is not None:
            node._store(name, info.default_factory(), owned=True)
        elif info.default not in (ABSENT, REQUIRED):
            node._store(name, info.default, owned=True)
    return node


def _parse(text: str) -> object:
    import ast

    kind, _, rest = text.partition(" ")
    if kind == "open":
        return _OPEN
    if kind == "new":
        cls = import_by_name(rest)
        if not isinstance(cls, ConfigMeta):
            raise TextError(f"{rest} is no config class")
        return _blank(cls)
    if kind in ("call", "partial"):
        fn = import_by_name(rest)
        if not callable(fn):
            raise TextError(f"{rest} is not callable")
        return _blank(cast("ConfigMeta", class_for_call(fn) if kind == "call" else class_for_partial(fn)))
    if kind == "name":
        return import_by_name(rest)
    if kind == "float":
        return float(rest)
    if kind == "enum":
        owner, _, member = rest.rpartition(".")
        return cast("type[enum.Enum]", import_by_name(owner))[member]
    if kind == "data":
        name, _, fields = rest.partition(" ")
        return cast("type", import_by_name(name))(**ast.literal_eval(fields))
    if kind in ("tuple", "list") and rest.isdigit():
        items: list[object] = [None] * int(rest)
        return _Sized(items if kind == "list" else tuple(items))
    if kind == "dict" and rest:
        return _Sized(dict.fromkeys(cast("list[str]", ast.literal_eval(rest))))
    try:
        return cast("object", ast.literal_eval(text))
    except (ValueError, SyntaxError) as e:
        raise TextError(f"not a value: {text}") from e


class Change(NamedTuple):
    """One difference between two trees: the text before and after, None where the path doesn't exist."""

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        """One line, marked as in a diff."""
        if self.before is None:
            return f"+ {self.path} = {self.after}"
        if self.after is None:
            return f"- {self.path} = {self.before}"
        return f"~ {self.path} = {self.before} → {self.after}"


def diff(before: Config[object], after: Config[object]) -> list[Change]:
    """What differs between two trees, path by path, in the order of the trees."""
    return diff_texts(flatten(before), flatten(after))


def diff_texts(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """What differs between two flattened trees."""
    paths = [*before, *(path for path in after if path not in before)]
    return [Change(p, before.get(p), after.get(p)) for p in paths if before.get(p) != after.get(p)]
