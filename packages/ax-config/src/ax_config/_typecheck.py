"""Checks values against fields' types at run time.

A type annotation is compiled once into a ``Check``: a function that returns the value to store (only ``int`` in a
``float`` field is converted) or raises ``MismatchError``. Annotations are resolved late, so that a config may name classes
that are defined further down.
"""

from __future__ import annotations

import builtins
import collections.abc
import enum
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from .protocols import Buildable

Check: TypeAlias = Callable[[object], object]


class MismatchError(Exception):
    """The value is not of the type."""


class Unresolved:
    """Stands for a name that exists for the type checker only (``if TYPE_CHECKING:``)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Unresolved:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unresolved(f"{self.name}.{name}")

    def __getitem__(self, item: object) -> Unresolved:
        return self

    def __or__(self, other: object) -> Unresolved:
        return self

    __ror__ = __or__


class _Names(dict[str, object]):
    def __init__(self, scopes: tuple[Mapping[str, object], ...]) -> None:
        super().__init__()
        self._scopes = scopes

    def __missing__(self, name: str) -> object:
        for scope in self._scopes:
            if name in scope:
                return scope[name]
        return getattr(builtins, name, None) or Unresolved(name)


def resolve(annotation: object, module: str, *scopes: Mapping[str, object]) -> object:
    """The type that an annotation written in ``module`` means; names are looked up in ``scopes`` first."""
    if isinstance(annotation, str):
        module_names = getattr(sys.modules.get(module), "__dict__", {})
        return eval(annotation, {}, _Names((*scopes, module_names)))
    return annotation


def compile_check(hint: object, *, is_config: Callable[[object], bool]) -> Check:
    """Compile a resolved type into a check. ``is_config`` tells configs from other values."""

    def build(hint: object) -> Check:
        if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
            return _accept
        if isinstance(hint, Unresolved):
            raise NameError(f"{hint.name} is not defined when the program runs; import it outside `if TYPE_CHECKING:`")
        if hint is None or hint is type(None):
            return _instance(type(None))
        if hasattr(hint, "__supertype__"):  # NewType
            return build(hint.__supertype__)
        origin, args = get_origin(hint), get_args(hint)
        if hasattr(hint, "__value__"):  # a `type X = …` alias
            return build(hint.__value__)
        if origin is Annotated:
            return build(args[0])
        if origin is Union or origin is types.UnionType:
            return _union([build(arg) for arg in args])
        if origin is Literal:
            return _literal(args)
        if hint in _SCALARS:
            return _SCALARS[hint]
        if hint is Buildable or origin is Buildable:
            return _buildable(args[0] if args else Any, is_config)
        if origin is tuple:
            if len(args) == 2 and args[1] is ...:
                return _sequence((tuple,), build(args[0]))
            return _fixed_tuple([build(arg) for arg in args])
        if origin is list:
            return _sequence((list,), build(args[0]))
        if origin is collections.abc.Sequence:
            return _sequence((list, tuple), build(args[0]))
        if origin in (dict, collections.abc.Mapping):
            return _mapping(build(args[0]), build(args[1]))
        if hint is collections.abc.Callable or origin is collections.abc.Callable:
            return _callable
        if origin is type:
            return _subclass(args[0])
        base = origin or hint
        if isinstance(base, type):
            if getattr(base, "_is_protocol", False):
                return _accept
            return _instance(base)
        return _accept

    return build(hint)


def _accept(value: object) -> object:
    return value


def _instance(cls: type) -> Check:
    def check(value: object) -> object:
        if not isinstance(value, cls):
            raise MismatchError
        return value

    return check


def _exact_int(value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool | enum.Enum):
        raise MismatchError
    return value


def _exact_float(value: object) -> object:
    if isinstance(value, float):
        return value
    return float(typing.cast(int, _exact_int(value)))


_SCALARS: dict[type, Check] = {
    bool: _instance(bool),
    int: _exact_int,
    float: _exact_float,
    str: _instance(str),
    bytes: _instance(bytes),
}


def _union(checks: list[Check]) -> Check:
    def check(value: object) -> object:
        converted: list[object] = []
        for option in checks:
            try:
                result = option(value)
            except MismatchError:
                continue
            if result is value:
                return value
            converted.append(result)
        if not converted:
            raise MismatchError
        return converted[0]

    return check


def _literal(options: tuple[object, ...]) -> Check:
    def check(value: object) -> object:
        if not any(value == option and type(value) is type(option) for option in options):
            raise MismatchError
        return value

    return check


def _buildable(result: object, is_config: Callable[[object], bool]) -> Check:
    """A config; as far as its class tells what it builds, that has to fit ``result``."""
    complaint = _complaint(result)

    def check(value: object) -> object:
        if not is_config(value):
            if isinstance(value, type) or not isinstance(value, Buildable):
                raise MismatchError
            return value
        target = getattr(value, "__ax_target__", None)
        if isinstance(target, type) and getattr(value, "__ax_kind__", "") != "partial":
            problem = complaint(target)
            if problem:
                raise MismatchError(problem)
        return value

    return check


def _complaint(result: object) -> Callable[[type], str]:
    """Says of a class why what it makes is not a ``result``; nothing if it is one, or if a class alone can't tell."""
    wanted, args = get_origin(result) or result, get_args(result)
    if wanted is Annotated:
        return _complaint(args[0])
    if wanted is Union or wanted is types.UnionType:
        options = [_complaint(arg) for arg in args]
        return lambda made: min((option(made) for option in options), key=len)  # one that has none is enough
    if wanted is Any or not isinstance(wanted, type):
        return lambda _: ""
    if getattr(wanted, "_is_protocol", False):
        methods = _methods_of(wanted)

        def lacks(made: type) -> str:
            missing = [name for name in methods if not _has_method(made, name)]
            return f"it builds a {made.__qualname__}, which has no {', '.join(missing)}" if missing else ""

        return lacks
    return lambda made: "" if issubclass(made, wanted) else f"it builds a {made.__qualname__}"


_NO_METHODS = frozenset({"__init__", "__subclasshook__", "__class_getitem__", "__new__", "__init_subclass__"})


def _methods_of(protocol: object) -> list[str]:
    """The methods that a Protocol asks for; what else it asks for may be set when an object is made, so it can't be told."""
    bases = [base for base in typing.cast(type, protocol).__mro__ if getattr(base, "_is_protocol", False)]
    names = {name for base in bases for name, item in vars(base).items() if isinstance(item, types.FunctionType)}
    return sorted(name for name in names - _NO_METHODS if not name.startswith("_abc_"))


def _has_method(cls: type, name: str) -> bool:
    """Whether instances of a class have a method; a class that answers to any name is believed."""
    return any(name in vars(base) or "__getattr__" in vars(base) for base in cls.__mro__)


def _sequence(kinds: tuple[type, ...], item: Check) -> Check:
    def check(value: object) -> object:
        if not isinstance(value, kinds):
            raise MismatchError
        items = typing.cast("collections.abc.Sequence[object]", value)
        return type(value)(map(item, items))  # type: ignore[call-arg]  # a tuple or a list takes an iterable

    return check


def _fixed_tuple(checks: list[Check]) -> Check:
    def check(value: object) -> object:
        if not isinstance(value, tuple) or len(value) != len(checks):
            raise MismatchError
        return tuple(option(item) for option, item in zip(checks, value, strict=True))

    return check


def _mapping(key: Check, item: Check) -> Check:
    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise MismatchError
        return {key(k): item(v) for k, v in value.items()}

    return check


def _callable(value: object) -> object:
    if not callable(value):
        raise MismatchError
    return value


def _subclass(base: object) -> Check:
    base = get_origin(base) or base

    def check(value: object) -> object:
        if not isinstance(value, type) or (isinstance(base, type) and not issubclass(value, base)):
            raise MismatchError
        return value

    return check


def describe(hint: object) -> str:
    """The type as a person would write it."""
    if hint is type(None):
        return "None"
    origin, args = get_origin(hint), get_args(hint)
    if origin is Union or origin is types.UnionType:
        return " | ".join(describe(arg) for arg in args)
    if origin is not None and args:
        inner = ", ".join("…" if arg is ... else repr(arg) if origin is Literal else describe(arg) for arg in args)
        return f"{getattr(origin, '__name__', origin)}[{inner}]"
    if isinstance(hint, type):
        return hint.__qualname__
    return str(hint)
