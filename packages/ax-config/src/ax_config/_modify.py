"""Modifiers: pure functions from a tree to a new tree, the only way that features and mesh rules change a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from ._config import Config
from ._tree import Target, replace, selected, set_at

ConfigT = TypeVar("ConfigT", bound=Config[object])
Modifier: TypeAlias = Callable[[ConfigT], ConfigT]
"""Takes a tree, leaves it alone, gives a new one."""


class AnyModifier(Protocol):
    """A modifier that fits trees of every class."""

    def __call__(self, config: ConfigT, /) -> ConfigT:
        """The new tree."""
        ...


def chain(*modifiers: Modifier[ConfigT]) -> Modifier[ConfigT]:
    """The modifier that applies ``modifiers`` from left to right; none of them gives the identity (a copy)."""

    def apply(config: ConfigT) -> ConfigT:
        tree = config.clone()
        for modifier in modifiers:
            tree = modifier(tree)
        return tree

    return apply


def replacing(target: Target, new: Config[object] | Callable[[Config[object]], Config[object]]) -> AnyModifier:
    """The modifier that puts ``new`` in place of every config that ``target`` selects; see ``replace``."""

    def apply(config: ConfigT) -> ConfigT:
        return replace(config, target, new)

    return apply


def setting(target: Target, **values: object) -> AnyModifier:
    """The modifier that sets fields on every config that ``target`` selects.

    Raises:
        NoMatchError: When applied to a tree in which ``target`` selects nothing.
    """

    def apply(config: ConfigT) -> ConfigT:
        tree = config.clone()
        for path, _ in selected(tree, target):
            for name, value in values.items():
                set_at(tree, f"{path}.{name}" if path else name, value)
        return tree

    return apply
