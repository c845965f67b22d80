"""Modifiers: configs that change configs, the only way that features and mesh rules touch a tree.

A modifier is a config like any other (its fields are checked, it has a text, it can be part of a tree and be modified) that
can be called with a tree and gives a new one. Subclass ``Modifier`` and write ``apply``; or write a function
``fn(tree, *, …) -> tree`` and take ``modifier_for(fn, …)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Concatenate, ParamSpec, Protocol, TypeVar, cast

from ._callables import arguments_of, class_for, revive_call, signature_of, target_of
from ._config import Config, itself
from ._errors import ConfigError, MissingFieldError
from ._provenance import acting

P = ParamSpec("P")
ConfigT = TypeVar("ConfigT", bound=Config[object])


class AnyModifier(Protocol):
    """Takes a tree of any class, leaves it alone, gives a new one of the same class."""

    def __call__(self, tree: ConfigT, /) -> ConfigT:
        """The new tree."""
        ...


class Modifier(Config[AnyModifier]):
    """A config that changes trees; override ``apply``.

    Calling it is pure: it leaves its argument alone, and what it gives shares nothing with it.
    """

    def __call__(self, tree: ConfigT, /) -> ConfigT:
        """The new tree.

        Raises:
            MissingFieldError: A field of the modifier is still open.
        """
        return cast("ConfigT", applied(self, tree.clone()))

    def apply(self, tree: Config[object]) -> Config[object]:
        """Change ``tree``, which is a copy of the modifier's own, and give it back, or give another."""
        raise NotImplementedError(f"{type(self).__qualname__} has no apply")

    def make(self, **extras: object) -> AnyModifier:
        """The modifier itself."""
        return itself(self, extras)


def applied(modifier: Callable[[Config[object]], Config[object]], tree: Config[object]) -> Config[object]:
    """What a modifier makes of a tree that is the caller's own and may be changed."""
    if isinstance(modifier, Modifier):
        if open_fields := modifier._open_fields():
            raise MissingFieldError(f"{type(modifier).__qualname__}: required and not set: {', '.join(open_fields)}")
        with acting(modifier, says_all=type(modifier).__module__.startswith("ax_config.")):
            changed = modifier.apply(tree)
    else:
        with acting(modifier):
            changed = modifier(tree)
    if not isinstance(cast("object", changed), Config):
        name = getattr(modifier, "__qualname__", type(modifier).__qualname__)
        raise ConfigError(f"{name} gave {changed!r}; a modifier gives back the tree (is there a return?)")
    return changed if changed._ax_parent is None else changed.clone()


class FunctionModifier(Modifier):
    """The modifier that calls a function with the tree; its fields are the function's other parameters."""

    __ax_kind__: ClassVar[str] = "modify"

    def apply(self, tree: Config[object]) -> Config[object]:
        """Call the function."""
        args, kwargs = arguments_of(self, {})
        return cast("Config[object]", target_of(self)(tree, *args, **kwargs))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles hold the function by its import name."""
        return revive_call, (FunctionModifier, target_of(self), dict(self.__dict__))


def modifier_for(
    fn: Callable[Concatenate[ConfigT, P], ConfigT], /, *args: P.args, **kwargs: P.kwargs
) -> FunctionModifier:
    """The modifier that calls ``fn`` with a tree and these arguments: ``modifier_for(use_moe, num_experts=8)``."""
    names = list(signature_of(fn).parameters)[1:]
    return cast("FunctionModifier", class_for(fn, FunctionModifier)(**dict(zip(names, args, strict=False)), **kwargs))


def class_for_modifier(fn: Callable[..., object]) -> type[Config[object]]:
    """The config class behind ``modifier_for(fn)``."""
    return class_for(fn, FunctionModifier)
