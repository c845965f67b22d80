"""Configs: typed trees of values that describe an object and can build it.

A ``Config`` class lists fields as a dataclass does. Its metaclass takes the defaults out of the class, so that a value
that is set lies in the instance's ``__dict__`` (reading costs what any attribute costs) and one that is not set ends in
``__getattr__``, which can say so with the full path. Setting goes through ``__setattr__``: the name, the type and the
kind of value are checked, and configs among the value are *copied* in. So a config has at most one parent, which it
knows; that is what lets errors and tools name the path, and what rules out that two trees share a part.

A config that is nested in a class builds that class:

    class Linear:
        class Config(ax_config.Config["Linear"]):
            in_dim: int = REQUIRED
            out_dim: int = REQUIRED

        def __init__(self, cfg: Config, /) -> None: ...

    linear = Linear.Config(in_dim=4).build(out_dim=8)
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast, dataclass_transform

from ._errors import ConfigError, ConflictError, FieldTypeError, MissingFieldError, UnknownFieldError, nearest
from ._fields import ABSENT, REQUIRED, Field, FieldSpec, field
from ._typecheck import Check, MismatchError, compile_check, describe, resolve

T_co = TypeVar("T_co", covariant=True)
ConfigT = TypeVar("ConfigT", bound="Config[object]")

_SCALARS = (bool, int, float, str, bytes, type(None))
_RESERVED = ("build", "clone", "make")


def _annotations(cls: type) -> Mapping[str, object]:
    if sys.version_info >= (3, 14):  # annotations are evaluated late there; names that don't exist yet stay open
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    own: Mapping[str, object] = cls.__dict__.get("__annotations__", {})  # noqa: RUF063  # inspect is slow to import
    return own


def _own_fields(cls: type, namespace: Mapping[str, object]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for name, annotation in _annotations(cls).items():
        if name.startswith("_") or str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        if name in _RESERVED:
            raise TypeError(f"{cls.__qualname__}: a field can't be called {name!r}, every config has that method")
        given = namespace.get(name, ABSENT)
        if isinstance(given, FieldSpec):
            fields[name] = Field(name, annotation, given.default, given.default_factory, given.help)
        else:
            if isinstance(given, Config | list | dict):
                raise TypeError(
                    f"{cls.__qualname__}.{name}: a default of type {type(given).__qualname__} would be shared; "
                    "write field(default_factory=…)"
                )
            fields[name] = Field(name, annotation, given)
        if name in namespace:
            delattr(cls, name)
    return fields


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class ConfigMeta(type):
    """Collects a config class's fields, and learns which class it is nested in."""

    __ax_fields__: dict[str, Field]
    __ax_own__: dict[str, Field]
    __ax_checks__: dict[str, Check]
    __ax_target__: Callable[..., object] | None

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> ConfigMeta:
        """Make the class; its annotated names become fields."""
        cls = super().__new__(mcls, name, bases, namespace)
        fields: dict[str, Field] = {}
        for base in reversed(cls.__mro__[1:]):
            fields.update(getattr(base, "__ax_own__", {}))
        cls.__ax_own__ = _own_fields(cls, namespace)
        cls.__ax_fields__ = {**fields, **cls.__ax_own__}
        cls.__ax_checks__ = {}
        if "__ax_target__" not in namespace:
            cls.__ax_target__ = None
        return cls

    def __set_name__(cls, owner: type, name: str) -> None:
        """Called when the class that holds this one in its body is made."""
        if cls.__qualname__ == f"{owner.__qualname__}.{name}" and not isinstance(owner, ConfigMeta):
            cls.__ax_target__ = owner

    def check_of(cls, name: str) -> Check:
        """The run-time check of a field, compiled at its first use."""
        check = cls.__ax_checks__.get(name)
        if check is None:
            hint = cls.hint_of(name)
            try:
                check = compile_check(hint, is_config=_is_config)
            except NameError as e:
                raise ConfigError(f"{cls.__qualname__}.{name}: {e}") from None
            cls.__ax_checks__[name] = check
        return check

    def hint_of(cls, name: str) -> object:
        """The resolved type of a field."""
        definer = next(base for base in cls.__mro__ if name in getattr(base, "__ax_own__", {}))
        owner = getattr(definer, "__ax_target__", None)
        scopes: list[Mapping[str, object]] = [vars(definer)]
        if isinstance(owner, type):
            scopes += [vars(owner), {owner.__name__: owner}]
        return resolve(cls.__ax_fields__[name].annotation, definer.__module__, *scopes)


def _is_config(value: object) -> bool:
    return isinstance(value, Config)


class Config(Generic[T_co], metaclass=ConfigMeta):
    """A description of a ``T``: named, typed values, some of them configs in turn.

    Subclass it inside the class it describes, or override ``make``. See the module's docstring for the pattern.

    Raises:
        UnknownFieldError: A name that is no field.
        FieldTypeError: A value of the wrong type.
        MissingFieldError: A field without a default was not given.
    """

    __ax_target__: ClassVar[Callable[..., object] | None]
    __slots__ = ("__dict__", "__weakref__", "_ax_key", "_ax_parent")
    if TYPE_CHECKING:
        _ax_parent: ClassVar[Config[object] | None]  # set on instances; ClassVar keeps them from being fields
        _ax_key: ClassVar[str]
    __hash__ = None  # type: ignore[assignment]  # configs change, so they can't be keys

    def __init__(self, **values: object) -> None:
        object.__setattr__(self, "_ax_parent", None)
        object.__setattr__(self, "_ax_key", "")
        fields = type(self).__ax_fields__
        absent = []
        for name, info in fields.items():
            if name in values:
                setattr(self, name, values[name])
            elif info.default_factory is not None:
                self._store(name, info.default_factory(), owned=True)
            elif info.default is ABSENT:
                absent.append(name)
            elif info.default is not REQUIRED:
                self._store(name, info.default, owned=True)
        for name in values:
            if name not in fields:
                raise self._unknown(name)
        if absent:
            raise MissingFieldError(f"{type(self).__qualname__}: no value for {', '.join(absent)}")

    if not TYPE_CHECKING:  # a type checker has to see the fields alone, or it would allow every name

        def __setattr__(self, name: str, value: object) -> None:
            """Check and store a value; configs in it are copied."""
            self._store(name, value, owned=False)

        def __getattr__(self, name: str) -> object:
            """Reached for names that are not set: says whether the field is open or unknown."""
            if name.startswith("__") or name in ("_ax_parent", "_ax_key"):
                raise AttributeError(name)
            if name in type(self).__ax_fields__:
                raise MissingFieldError(f"{path_to(self, name)} is not set")
            raise self._unknown(name)

        def __delattr__(self, name: str) -> None:
            """Open a field again."""
            if name not in self.__dict__:
                getattr(self, name)
            _orphan(self.__dict__.pop(name))

    def __eq__(self, other: object) -> bool:
        """Same class, same fields set, to equal values."""
        return type(self) is type(other) and self.__dict__ == cast("Config[object]", other).__dict__

    def __repr__(self) -> str:
        """The constructor call that gives this config."""
        inside = ", ".join(
            f"{name}={self.__dict__[name]!r}" for name in type(self).__ax_fields__ if name in self.__dict__
        )
        return f"{type(self).__qualname__}({inside})"

    def __deepcopy__(self: ConfigT, memo: dict[int, object]) -> ConfigT:
        """Copies are always deep."""
        return self.clone()

    def __copy__(self: ConfigT) -> ConfigT:
        """Copies are always deep."""
        return self.clone()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles hold the class and the values."""
        return revive, (type(self), dict(self.__dict__))

    def clone(self: ConfigT, **changes: object) -> ConfigT:
        """A copy that shares nothing with this tree, with ``changes`` set on it."""
        twin = _copy_node(self, None, "")
        for name, value in changes.items():
            setattr(twin, name, value)
        return twin

    def build(self, **runtime: object) -> T_co:
        """Make what this config describes.

        ``runtime`` names that are fields fill the fields that are still open; the others go to ``make``. This config is
        not changed: the object gets a complete copy of its own.

        Raises:
            MissingFieldError: Required fields are still open; all of them are named.
            ConflictError: ``runtime`` gives a field another value than the one set.
        """
        fields = type(self).__ax_fields__
        twin = _copy_node(self, None, path_of(self))
        extras: dict[str, object] = {}
        for name, value in runtime.items():
            if name not in fields or self._is_for_make(value):
                extras[name] = value
            elif name not in twin.__dict__:
                setattr(twin, name, value)
            elif twin.__dict__[name] != value:
                raise ConflictError(
                    f"{path_to(self, name)} is {twin.__dict__[name]!r}, but its parent builds it with {value!r}; "
                    "leave it open, or make both agree"
                )
        open_fields = [n for n, info in fields.items() if n not in {**twin.__dict__, **extras} and not info.optional]
        if open_fields:
            names = ", ".join(path_to(self, name) for name in open_fields)
            raise MissingFieldError(f"{type(self).__qualname__}: required and not set: {names}")
        return twin.make(**extras)

    def _is_for_make(self, value: object) -> bool:  # noqa: ARG002  # for configs of calls to say otherwise
        """Whether a value given to ``build`` is no part of the description, though its name is a field's."""
        return False

    def make(self, **extras: object) -> T_co:
        """Called by ``build`` on the complete copy. Calls the class that this config is nested in; override otherwise."""
        target = type(self).__ax_target__
        if target is None:
            raise ConfigError(
                f"{type(self).__qualname__} describes nothing: nest it in the class it builds, or override make"
            )
        if extras:
            self._check_extras(target, extras)
        return cast("T_co", target(self, **extras))

    def _check_extras(self, target: Callable[..., object], extras: Mapping[str, object]) -> None:
        import inspect  # here and not above: it takes as long to import as all of ax_config

        parameters = inspect.signature(target).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return
        legal = [n for n, p in parameters.items() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
        for name in extras:
            if name not in legal:
                hint = nearest(name, [*type(self).__ax_fields__, *legal])
                raise UnknownFieldError(
                    f"{path_of(self) or type(self).__qualname__}: its parent builds it with {name!r}, which is neither "
                    f"a field of {type(self).__qualname__} nor an argument of {getattr(target, '__qualname__', target)}; {hint}"
                )

    def _unknown(self, name: str) -> UnknownFieldError:
        return UnknownFieldError(
            f"{path_of(self) or 'config'} ({type(self).__qualname__}) has no field {name!r}; "
            f"{nearest(name, type(self).__ax_fields__)}"
        )

    def _store(self, name: str, value: object, *, owned: bool) -> None:
        cls = type(self)
        if name not in cls.__ax_fields__:
            raise self._unknown(name)
        try:
            value = cls.check_of(name)(value)
        except MismatchError:
            kind = type(value).__qualname__
            raise FieldTypeError(
                f"{path_to(self, name)} wants {describe(cls.hint_of(name))}, got {value!r} ({kind})"
            ) from None
        if not isinstance(value, _SCALARS):
            value = _adopt(value, self, name, owned=owned)
        old = self.__dict__.get(name)
        self.__dict__[name] = value
        if old is not None and old is not value:
            _orphan(old)


def _adopt(value: object, parent: Config[object], key: str, *, owned: bool) -> object:
    """``value`` as a part of ``parent``: configs in it copied (unless fresh), containers rebuilt, the rest checked."""
    if isinstance(value, Config):
        if owned and value._ax_parent is None:
            object.__setattr__(value, "_ax_parent", parent)
            object.__setattr__(value, "_ax_key", key)
            return value
        return _copy_node(value, parent, key)
    if isinstance(value, (*_SCALARS, enum.Enum)):
        return value
    if isinstance(value, tuple | list):
        items = [_adopt(item, parent, f"{key}[{i}]", owned=owned) for i, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        if not all(isinstance(k, str) for k in value):
            raise FieldTypeError(f"{path_to(parent, key)}: keys of a dict in a config are strings, got {list(value)!r}")
        return {k: _adopt(v, parent, f"{key}[{k!r}]", owned=owned) for k, v in value.items()}
    if is_dataclass(value):
        if not value.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # every dataclass has it
            raise FieldTypeError(f"{path_to(parent, key)}: a dataclass in a config is frozen, {value!r} is not")
        return value
    if callable(value) and hasattr(value, "__qualname__"):
        return value
    raise FieldTypeError(
        f"{path_to(parent, key)}: no config holds a {type(value).__qualname__}; it holds scalars, enums, tuples, lists, "
        "dicts, frozen dataclasses, functions and classes by import name, and configs"
    )


def is_dataclass(value: object) -> bool:
    """Whether ``value`` is an instance of a dataclass."""
    return hasattr(type(value), "__dataclass_fields__")


_ATOMS = (*_SCALARS, enum.Enum, type, types.FunctionType, types.BuiltinFunctionType)


def _copy_value(value: object, parent: Config[object], key: str) -> object:
    """A copy of a value that an earlier check accepted."""
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, Config):
        return _copy_node(value, parent, key)
    if isinstance(value, list):
        return [_copy_value(item, parent, f"{key}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return tuple(_copy_value(item, parent, f"{key}[{i}]") for i, item in enumerate(value))
    if isinstance(value, dict):
        return {k: _copy_value(v, parent, f"{key}[{k!r}]") for k, v in value.items()}
    return value


def _copy_node(node: ConfigT, parent: Config[object] | None, key: str) -> ConfigT:
    twin = object.__new__(type(node))
    object.__setattr__(twin, "_ax_parent", parent)
    object.__setattr__(twin, "_ax_key", key)
    values = twin.__dict__
    for name, value in node.__dict__.items():
        values[name] = _copy_value(value, twin, name)
    return twin


def revive(cls: type[ConfigT], values: Mapping[str, object]) -> ConfigT:
    """The config of a class with just these values set, unchecked; for pickles."""
    node = object.__new__(cls)
    object.__setattr__(node, "_ax_parent", None)
    object.__setattr__(node, "_ax_key", "")
    for name, value in values.items():
        node.__dict__[name] = _copy_value(value, node, name)
    return node


def _orphan(value: object) -> None:
    for _, child in configs_in(value, ""):
        object.__setattr__(child, "_ax_parent", None)
        object.__setattr__(child, "_ax_key", "")


def configs_in(value: object, key: str) -> Iterator[tuple[str, Config[object]]]:
    """The configs in a field's value, which may be one or hold some, each with its path below the field's owner."""
    if isinstance(value, Config):
        yield key, value
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from configs_in(item, f"{key}[{i}]")
    elif isinstance(value, dict):
        for k, item in value.items():
            yield from configs_in(item, f"{key}[{k!r}]")


def path_of(node: Config[object]) -> str:
    """Where ``node`` stands in its tree: ``"model.stack.layer"``, empty for the root."""
    keys = []
    at: Config[object] | None = node
    while at is not None:
        if at._ax_key:
            keys.append(at._ax_key)
        at = at._ax_parent
    return ".".join(reversed(keys))


def path_to(node: Config[object], name: str) -> str:
    """The path of a field of ``node``."""
    above = path_of(node)
    return f"{above}.{name}" if above else name


def fields_of(config: Config[object] | type[Config[object]]) -> Mapping[str, Field]:
    """The fields of a config or of its class, in order."""
    cls = config if isinstance(config, type) else type(config)
    return types.MappingProxyType(cls.__ax_fields__)


def values_of(config: Config[object]) -> dict[str, object]:
    """The fields that are set, in the order of the class."""
    values = config.__dict__
    return {name: values[name] for name in type(config).__ax_fields__ if name in values}
