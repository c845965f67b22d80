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
from ._frozen import FrozenDict, FrozenList
from ._provenance import Log, Nothing, given, logged
from ._typecheck import Check, MismatchError, compile_check, describe, resolve

T_co = TypeVar("T_co", covariant=True)
ConfigT = TypeVar("ConfigT", bound="Config[object]")

_SCALARS = (bool, int, float, str, bytes, type(None))
EXACT = frozenset(_SCALARS)
"""The types of the values that need no care: they can't change and hold nothing."""


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
        if any(isinstance(vars(base).get(name), types.FunctionType) for base in cls.__mro__[1:]):
            raise TypeError(f"{cls.__qualname__}: a field can't be called {name!r}, a config has a method of that name")
        given = namespace.get(name, ABSENT)
        if isinstance(given, FieldSpec):
            fields[name] = Field(name, annotation, given.default, given.default_factory, given.help, role=given.role)
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
    __ax_kind__: ClassVar[str] = "new"
    __slots__ = ("__dict__", "__weakref__", "_ax_key", "_ax_log", "_ax_parent")
    if TYPE_CHECKING:
        _ax_parent: ClassVar[Config[object] | None]  # set on instances; ClassVar keeps them from being fields
        _ax_key: ClassVar[str]
        _ax_log: ClassVar[Log]
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # configs change, so they can't be keys

    def __init__(self, **values: object) -> None:
        _set_parent(self, None)
        _set_key(self, "")
        _set_log(self, given(tuple(values)))
        fields = type(self).__ax_fields__
        absent = []
        for name, info in fields.items():
            if name in values:
                if values[name] is not REQUIRED:
                    self._store(name, values[name], owned=False)
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
            """Check and store a value; configs in it are copied. ``REQUIRED`` opens the field."""
            before = self.__dict__.get(name, Nothing)
            if value is REQUIRED and before is not Nothing:
                delattr(self, name)
                return
            self._store(name, value, owned=False)
            _set_log(self, logged(self._ax_log, name, before))

        def __getattr__(self, name: str) -> object:
            """Reached for names that are not set: says whether the field is open or unknown."""
            if name.startswith(("__", "_ax_")):
                raise AttributeError(name)
            if name in type(self).__ax_fields__:
                raise MissingFieldError(f"{path_to(self, name)} is not set")
            raise self._unknown(name)

        def __delattr__(self, name: str) -> None:
            """Open a field again."""
            if name not in self.__dict__:
                getattr(self, name)
            before = self.__dict__.pop(name)
            for _, child in configs_in(before, name):
                _set_parent(child, None)
                _set_key(child, "")
            _set_log(self, logged(self._ax_log, name, before))

    def __eq__(self, other: object) -> bool:
        """Same class, same fields set, to equal values of equal types (1, 1.0 and True are three values)."""
        return same(self, other)

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
        open_fields = [name for name in twin._open_fields() if name not in extras]
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

    def _open_fields(self) -> list[str]:
        """The names of the fields that have to be filled before ``build``."""
        values = self.__dict__
        return [n for n, info in type(self).__ax_fields__.items() if n not in values and not info.optional]

    def _store(self, name: str, value: object, *, owned: bool) -> None:
        cls = type(self)
        if name not in cls.__ax_fields__:
            raise self._unknown(name)
        if value is REQUIRED:
            return
        try:
            value = (cls.__ax_checks__.get(name) or cls.check_of(name))(value)
        except MismatchError as e:
            kind = type(value).__qualname__
            because = f": {e}" if str(e) else ""
            raise FieldTypeError(
                f"{path_to(self, name)} wants {describe(cls.hint_of(name))}, got {value!r} ({kind}){because}"
            ) from None
        if type(value) not in EXACT:
            value = _adopt(value, self, name, owned=owned)
        old = self.__dict__.get(name)
        self.__dict__[name] = value
        if old is not value and type(old) not in EXACT:
            for _, child in configs_in(old, name):
                _set_parent(child, None)
                _set_key(child, "")
            for key, child in configs_in(value, name):  # some may have stayed where they were
                _set_parent(child, self)
                _set_key(child, key)


_set_parent = cast("Callable[[Config[object], Config[object] | None], None]", Config.__dict__["_ax_parent"].__set__)
_set_key = cast("Callable[[Config[object], str], None]", Config.__dict__["_ax_key"].__set__)
_set_log = cast("Callable[[Config[object], Log], None]", Config.__dict__["_ax_log"].__set__)
_new_node = cast("Callable[[type[Config[object]]], Config[object]]", object.__new__)


def itself(config: ConfigT, extras: Mapping[str, object]) -> ConfigT:
    """What a config makes that is its own product: it takes nothing from its parent."""

    def product() -> None: ...

    config._check_extras(product, extras)
    return config


def blank(cls: type[ConfigT]) -> ConfigT:
    """A config of a class with no field set, not even those with defaults; for readers of texts and pickles."""
    node = object.__new__(cls)
    _set_parent(node, None)
    _set_key(node, "")
    _set_log(node, None)
    return node


def default_of(cls: type[Config[object]], name: str) -> object:
    """The value that a field starts with, as a config holds it; ``Nothing`` if it starts open."""
    info = cls.__ax_fields__[name]
    if info.default_factory is None and info.default in (ABSENT, REQUIRED):
        return Nothing
    node = blank(cls)
    node._store(name, info.default if info.default_factory is None else info.default_factory(), owned=True)
    return node.__dict__[name]


def _adopt(value: object, parent: Config[object], key: str, *, owned: bool) -> object:
    """``value`` as a part of ``parent``: configs in it copied (unless fresh), containers rebuilt, the rest checked."""
    if isinstance(value, Config):
        if value._ax_parent is parent and value._ax_key == key:
            return value  # it stands here already
        if owned and value._ax_parent is None:
            _set_parent(value, parent)
            _set_key(value, key)
            return value
        return _copy_node(value, parent, key)
    if type(value) in EXACT or isinstance(value, enum.Enum):
        return value
    if isinstance(value, _SCALARS):  # numpy's float64 is a float, say
        plain: type = next(kind for kind in _SCALARS if isinstance(value, kind))
        return plain(value)
    if type(value) is tuple:
        return tuple([_adopt(item, parent, f"{key}[{i}]", owned=owned) for i, item in enumerate(value)])
    if isinstance(value, list):
        return FrozenList([_adopt(item, parent, f"{key}[{i}]", owned=owned) for i, item in enumerate(value)])
    if isinstance(value, dict):
        if not all(type(k) is str for k in value):
            raise FieldTypeError(f"{path_to(parent, key)}: keys of a dict in a config are strings, got {list(value)!r}")
        return FrozenDict({k: _adopt(v, parent, f"{key}[{k!r}]", owned=owned) for k, v in value.items()})
    problem = _why_not_held(value)
    if problem:
        raise FieldTypeError(f"{path_to(parent, key)}: {problem}")
    return value


def _why_not_held(value: object) -> str:
    """Why a value that is neither a config nor a container can't be part of a config; empty if it can."""
    if is_dataclass(value):
        kind = type(value).__qualname__
        if not value.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # every dataclass has it
            return f"a dataclass in a config is frozen, {value!r} is not"
        for name in type(value).__dataclass_fields__:  # type: ignore[attr-defined]
            if not _is_fixed(getattr(value, name)):
                return f"a dataclass in a config holds values that can't change, but {kind}.{name} is {getattr(value, name)!r}"
        return ""
    if is_dtype(value) or (callable(value) and hasattr(value, "__qualname__")):
        return ""
    if isinstance(value, tuple):
        return f"a {type(value).__qualname__} would lose its names; use a frozen dataclass or a plain tuple"
    return (
        f"no config holds a {type(value).__qualname__}; it holds scalars, enums, dtypes, tuples, lists, dicts, frozen "
        "dataclasses, functions and classes by import name, and configs"
    )


def _is_fixed(value: object) -> bool:
    """Whether a value can't change, as far as anybody can tell."""
    if isinstance(value, Config | list | dict | set | bytearray):
        return False
    if isinstance(value, tuple):
        return all(map(_is_fixed, value))
    return not is_dataclass(value) or not _why_not_held(value)


def is_dataclass(value: object) -> bool:
    """Whether ``value`` is an instance of a dataclass."""
    return hasattr(type(value), "__dataclass_fields__")


def is_dtype(value: object) -> bool:
    """Whether ``value`` is a dtype of numpy; numpy itself is not imported for that."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.dtype)


def _copy_value(value: object, parent: Config[object], key: str) -> object:
    """A copy of a value that an earlier check accepted."""
    if isinstance(value, Config):
        return _copy_node(value, parent, key)
    if type(value) is tuple or isinstance(value, FrozenList):
        if all(type(item) in EXACT for item in value):
            return value
        items = [_copy_value(item, parent, f"{key}[{i}]") for i, item in enumerate(value)]
        return FrozenList(items) if isinstance(value, FrozenList) else tuple(items)
    if isinstance(value, FrozenDict):
        return FrozenDict({k: _copy_value(v, parent, f"{key}[{k!r}]") for k, v in value.items()})
    return value


def _copy_node(node: ConfigT, parent: Config[object] | None, key: str) -> ConfigT:
    twin = _new_node(type(node))
    _set_parent(twin, parent)
    _set_key(twin, key)
    _set_log(twin, node._ax_log)
    values = twin.__dict__
    for name, value in node.__dict__.items():
        values[name] = value if type(value) in EXACT else _copy_value(value, twin, name)
    return cast("ConfigT", twin)


def revive(cls: type[ConfigT], values: Mapping[str, object]) -> ConfigT:
    """The config of a class with just these values set, their types unchecked; for pickles."""
    node = blank(cls)
    for name, value in values.items():
        node.__dict__[name] = _adopt(value, node, name, owned=True)
    return node


def same(a: object, b: object) -> bool:
    """Whether two values have the same text: equal, and of the same types all the way down. NaN is the same as NaN."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is float:
        return repr(a) == repr(b)
    if kind in EXACT:
        return a == b
    if isinstance(a, Config):
        ours, theirs = a.__dict__, cast("Config[object]", b).__dict__
        return len(ours) == len(theirs) and all(n in theirs and same(v, theirs[n]) for n, v in ours.items())
    if isinstance(a, tuple | list):
        others = cast("tuple[object, ...] | list[object]", b)
        return len(a) == len(others) and all(map(same, a, others))
    if isinstance(a, dict):
        other = cast("dict[str, object]", b)
        return list(a) == list(other) and all(same(v, other[k]) for k, v in a.items())
    if is_dataclass(a):
        return all(same(getattr(a, name), getattr(b, name)) for name in kind.__dataclass_fields__)  # type: ignore[attr-defined]
    return bool(a == b)


def configs_in(value: object, key: str) -> Iterator[tuple[str, Config[object]]]:
    """The configs in a field's value, which may be one or hold some, each with its path below the field's owner."""
    if isinstance(value, Config):
        yield key, value
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            if type(item) not in EXACT:
                yield from configs_in(item, f"{key}[{i}]")
    elif isinstance(value, dict):
        for k, item in value.items():
            if type(item) not in EXACT:
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
