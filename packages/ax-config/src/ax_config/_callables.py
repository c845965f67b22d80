"""Configs of callables that know nothing of configs.

``config_for(fn)`` reads the signature of ``fn`` and gives a config class whose fields are the parameters; building calls
``fn``. ``partial_for(fn, **bound)`` describes ``fn`` itself with some parameters bound, for functions that are values: a
kernel, an activation, a loss. Either way nested configs among the values are built first.
"""

from __future__ import annotations

import enum
import functools
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Generic, ParamSpec, TypeVar, cast

from ._config import Config, ConfigMeta, configs_in, fields_of, is_dataclass, is_dtype, revive
from ._errors import ConfigError, UnknownFieldError, nearest
from ._fields import REQUIRED, Field
from ._frozen import thawed
from ._typecheck import compile_check, resolve
from .protocols import Buildable

if TYPE_CHECKING:
    from inspect import Signature  # at run time where it is used: it takes as long to import as all of ax_config

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


class CallConfig(Config[T], Generic[T]):
    """Describes the result of calling a function; its fields are the function's parameters."""

    __ax_kind__: ClassVar[str] = "call"

    def _is_for_make(self, value: object) -> bool:
        return not _holdable(value)  # a mesh, an open file: an argument like any other, but nothing to describe

    def make(self, **extras: object) -> T:
        """Build the nested configs and call the function."""
        args, kwargs = arguments_of(self, extras)
        return cast("T", target_of(self)(*args, **kwargs))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles hold the function by its import name."""
        return revive_call, (CallConfig, target_of(self), dict(self.__dict__))


class PartialConfig(Config[F], Generic[F]):
    """Describes a function with some of its parameters bound; its fields are the function's parameters, all optional."""

    __ax_kind__: ClassVar[str] = "partial"

    def _is_for_make(self, value: object) -> bool:
        return not _holdable(value)

    def make(self, **extras: object) -> F:
        """Build the nested configs and bind the arguments; with none bound, the function itself."""
        args, kwargs = arguments_of(self, extras)
        fn = target_of(self)
        return cast("F", functools.partial(fn, *args, **kwargs) if args or kwargs else fn)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles hold the function by its import name."""
        return revive_call, (PartialConfig, target_of(self), dict(self.__dict__))


def revive_call(kind: type[Config[object]], fn: Callable[..., object], values: dict[str, object]) -> Config[object]:
    """The config of a kind, of a function, with just these values set; for pickles."""
    return revive(class_for(fn, kind), values)


def config_for(fn: Callable[P, T]) -> Callable[P, CallConfig[T]]:
    """The constructor of configs of calls of ``fn``: ``config_for(optax.adamw)(learning_rate=1e-3)``.

    Statically it takes what ``fn`` takes. ``REQUIRED`` leaves a parameter open, for a parent to fill at ``build``, and any
    argument may be a config; wrap it in ``built`` for the type checker's sake.
    """
    cls = class_for(fn, CallConfig)
    signature = signature_of(fn)
    fields = fields_of(cls)
    variadic = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

    def construct(*args: P.args, **kwargs: P.kwargs) -> CallConfig[T]:
        for name in kwargs:
            if name not in fields and not variadic:
                raise UnknownFieldError(f"{cls.__qualname__} has no parameter {name!r}; {nearest(name, fields)}")
        bound = signature.bind_partial(*args, **kwargs)
        return cast("CallConfig[T]", cls(**bound.arguments))

    return construct


def partial_for(fn: F, /, **bound: object) -> PartialConfig[F]:
    """A config of ``fn`` itself, with ``bound`` arguments: ``partial_for(jax.nn.gelu, approximate=False)``."""
    return cast("PartialConfig[F]", class_for(fn, PartialConfig)(**bound))


def built(config: Buildable[T]) -> T:
    """``config`` under the type of what it builds, to be given as an argument to ``config_for(…)(…)``.

    At run time it returns the config itself, which is built right before the call that it is an argument of.
    """
    return cast("T", config)


def class_for_call(fn: Callable[..., object]) -> type[Config[object]]:
    """The config class behind ``config_for(fn)``."""
    return class_for(fn, CallConfig)


def class_for_partial(fn: Callable[..., object]) -> type[Config[object]]:
    """The config class behind ``partial_for(fn)``."""
    return class_for(fn, PartialConfig)


def signature_of(fn: Callable[..., object]) -> Signature:
    """The signature of a function, or an error that says what to do without."""
    import inspect

    try:
        return inspect.signature(fn)
    except (ValueError, TypeError) as e:
        raise ConfigError(f"{fn!r} tells no signature, so it can't be a config; wrap it in a function") from e


@functools.cache
def class_for(fn: Callable[..., object], kind: type[Config[object]]) -> type[Config[object]]:
    """The config class of a kind (of calls, of partial calls, of modifiers) whose fields are the parameters of ``fn``."""
    if not hasattr(fn, "__qualname__"):
        raise ConfigError(f"a config needs a function or a class with an import name, got {fn!r}")
    hints = _hints(fn)
    fields = {}
    for name, parameter in [*signature_of(fn).parameters.items()][kind.__ax_kind__ == "modify" :]:
        hint: object = hints.get(name, object)
        default: object = REQUIRED if parameter.default is parameter.empty else parameter.default
        if parameter.kind is parameter.VAR_POSITIONAL:
            hint, default = tuple[object, ...], ()
        elif parameter.kind is parameter.VAR_KEYWORD:
            hint, default = dict[str, object], REQUIRED
        elif hint is not object:
            hint = typing.Union[hint, Buildable[hint]]  # type: ignore[valid-type]  # noqa: UP007  # a type known at run time
        optional = kind is PartialConfig or parameter.kind is parameter.VAR_KEYWORD
        if kind is PartialConfig or (default is not REQUIRED and not _holdable(default)):
            default, optional = REQUIRED, True
        fields[name] = Field(name, hint, default, optional=optional)
    name = f"{kind.__ax_kind__} {fn.__qualname__}"
    cls = ConfigMeta(
        name, (kind,), {"__module__": fn.__module__, "__doc__": fn.__doc__, "__ax_target__": staticmethod(fn)}
    )
    cls.__ax_own__.update(fields)
    cls.__ax_fields__.update(fields)
    return cast("type[Config[object]]", cls)


def _hints(fn: Callable[..., object]) -> dict[str, object]:
    """The types of the parameters, as far as they can be resolved; a foreign annotation may be anything."""
    body: object = vars(fn).get("__init__", fn) if isinstance(fn, type) else fn
    module = getattr(body, "__module__", fn.__module__)
    hints: dict[str, object] = {}
    for name, annotation in getattr(body, "__annotations__", {}).items():
        try:
            hint = resolve(annotation, module)
            compile_check(hint, is_config=lambda _: False)
        except (NameError, AttributeError, TypeError, SyntaxError):
            continue
        hints[name] = hint
    return hints


def _holdable(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_holdable, value))
    if isinstance(value, dict):
        return all(isinstance(k, str) and _holdable(v) for k, v in value.items())
    if is_dataclass(value):
        return False
    return (
        value is None
        or isinstance(value, bool | int | float | str | bytes | enum.Enum | Config)
        or is_dtype(value)
        or (callable(value) and hasattr(value, "__qualname__") and "<" not in value.__qualname__)
    )


def target_of(config: Config[object]) -> Callable[..., object]:
    """The function that a config of a call describes."""
    target = type(config).__ax_target__
    assert target is not None
    return target


def arguments_of(config: Config[object], extras: dict[str, object]) -> tuple[list[object], dict[str, object]]:
    """The arguments of the call that a config describes, nested configs built, with what its builder adds."""
    target = target_of(config)
    args: list[object] = []
    kwargs: dict[str, object] = {}
    parameters = signature_of(target).parameters
    config._check_extras(target, extras)
    variadic = any(p.kind is p.VAR_POSITIONAL and config.__dict__.get(n) for n, p in parameters.items())
    for name, parameter in parameters.items():
        if name not in config.__dict__:
            continue
        value = _built(config.__dict__[name])
        if parameter.kind is parameter.VAR_POSITIONAL:
            args.extend(cast("tuple[object, ...]", value))
        elif parameter.kind is parameter.VAR_KEYWORD:
            kwargs.update(cast("dict[str, object]", value))
        elif parameter.kind is parameter.POSITIONAL_ONLY or (
            variadic and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ):
            args.append(value)
        else:
            kwargs[name] = value
    return args, {**kwargs, **extras}


def _built(value: object) -> object:
    if isinstance(value, Config):
        return value.build()
    if not any(configs_in(value, "")):
        return thawed(value)
    if isinstance(value, dict):
        return {k: _built(v) for k, v in value.items()}
    items = [_built(item) for item in cast("list[object] | tuple[object, ...]", value)]
    return items if isinstance(value, list) else tuple(items)
