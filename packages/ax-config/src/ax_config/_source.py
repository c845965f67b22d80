"""Things named on a command line: ``module:function``, ``module:function(num_steps=10)``, a variable, or a file of ``dumps``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from ._callables import signature_of
from ._config import Config
from ._errors import ConfigError, TextError
from ._loads import loads
from ._modifier import Modifier, modifier_for
from ._names import import_by_name

AnyConfig = Config[object]
Tree = Callable[[AnyConfig], AnyConfig]


def config_from(source: str) -> AnyConfig:
    """The config that a source names: what a function returns, a variable, or what a file of ``dumps`` holds.

    Raises:
        ConfigError: There is no such thing, or it is no config.
    """
    file = Path(source)
    if ":" not in source or file.is_file():
        return _from_file(file)
    thing, called = _named(source)
    if not called and not isinstance(thing, Config) and callable(thing):
        thing = _call(source, thing)
    if not isinstance(thing, Config):
        raise ConfigError(f"{source} gives no config but {thing!r}")
    return thing


def modifier_from(source: str) -> Tree:
    """The modifier that a source names: a modifier, a function from a tree to a tree, or a function that returns either.

    Arguments in parentheses are those beside the tree.

    Raises:
        ConfigError: There is no such thing, or it is no modifier.
    """
    thing, called = _named(source, gets_tree=True)
    if not called and not isinstance(thing, Config) and callable(thing) and not _wants_tree(thing):
        thing = _call(source, thing)
    if isinstance(thing, Modifier) or (callable(thing) and not isinstance(thing, Config | type)):
        return cast("Tree", thing)
    raise ConfigError(f"{source} is no modifier but {thing!r}")


def configs_from(source: str) -> Mapping[str, Callable[[], AnyConfig]]:
    """The configs by name that a source names: a mapping of configs or of functions that return them, or a function that
    returns such a mapping.

    Raises:
        ConfigError: There is no such thing, or it is no such mapping.
    """
    thing, called = _named(source)
    if not called and callable(thing):
        thing = _call(source, thing)
    if not isinstance(thing, Mapping):
        raise ConfigError(f"{source} gives no mapping of names to configs but {thing!r}")
    return {str(name): _maker(f"{source}[{name!r}]", value) for name, value in thing.items()}


def _maker(name: str, value: object) -> Callable[[], AnyConfig]:
    if isinstance(value, Config):
        return lambda: value
    if isinstance(value, str):
        return lambda: config_from(value)
    if callable(value):
        return cast("Callable[[], AnyConfig]", value)
    raise ConfigError(f"{name} is neither a config nor a function that returns one: {value!r}")


def _from_file(file: Path) -> AnyConfig:
    try:
        return loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file} is neither module:function nor a file") from None
    except OSError as e:
        raise ConfigError(f"{file}: {e.strerror}") from e
    except TextError as e:
        raise TextError(f"{file}: {e}") from e


def _named(source: str, *, gets_tree: bool = False) -> tuple[object, bool]:
    """What is named, and whether it was called to get it; a function of a tree is bound instead, if it ``gets_tree``."""
    import ast

    name, parenthesis, _ = source.partition("(")
    thing = import_by_name(name)
    if not parenthesis:
        return thing, False
    try:
        call = ast.parse(source.partition(":")[2], mode="eval").body
        assert isinstance(call, ast.Call)
        args = [cast("object", ast.literal_eval(arg)) for arg in call.args]
        kwargs = {str(pair.arg): cast("object", ast.literal_eval(pair.value)) for pair in call.keywords}
    except (SyntaxError, ValueError, AssertionError) as e:
        raise ConfigError(f"{source}: arguments in parentheses are literals: module:function(num_steps=10)") from e
    if not callable(thing):
        raise ConfigError(f"{name} can't be called, it is {thing!r}")
    if gets_tree and _wants_tree(thing):
        return modifier_for(thing, *args, **kwargs), True
    return _call(source, thing, *args, **kwargs), True


def _call(source: str, fn: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    """What ``fn`` returns, given arguments that fit it."""
    try:
        signature_of(fn).bind(*args, **kwargs)
    except TypeError as e:
        raise ConfigError(f"{source}: {e}") from e
    return fn(*args, **kwargs)


def _wants_tree(fn: Callable[..., object]) -> bool:
    """Whether a function has a parameter for a tree: a first one without a default that is not for keywords only."""
    first = next(iter(signature_of(fn).parameters.values()), None)
    return (
        not isinstance(fn, type)
        and first is not None
        and first.default is first.empty
        and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
    )
