"""Modifiers: pure functions from a tree to a new tree, the only way that features and mesh rules change a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from ._config import Config
from ._tree import Target, replace, select, set_at

ConfigT = TypeVar("ConfigT", bound=Config[object])
Modifier: TypeAlias = Callable[[ConfigT], ConfigT]
"""Takes a tree, leaves it alone, gives a new one."""


def chain(*modifiers: Modifier[ConfigT]) -> Modifier[ConfigT]:
    """The modifier that applies ``modifiers`` from left to right; none of them gives the identity (a copy)."""

    def apply(config: ConfigT) -> ConfigT:
        tree = config.clone()
        for modifier in modifiers:
            tree = modifier(tree)
        return tree

    return apply


def replacing(target: Target, new: Config[object] | Callable[[Config[object]], Config[object]]) -> Modifier[ConfigT]:
    """The modifier that puts ``new`` in place of every config that ``target`` selects; see ``replace``."""
    return lambda config: replace(config, target, new)


def setting(target: Target, **values: object) -> Modifier[ConfigT]:
    """The modifier that sets fields on every config that ``target`` selects.

    Raises:
        NoMatchError: When applied to a tree in which ``target`` selects nothing.
    """

    def change(old: Config[object]) -> Config[object]:
        return old.clone(**values)

    def apply(config: ConfigT) -> ConfigT:
        tree = config.clone()
        found = select(tree, target)
        if not found:
            return replace(tree, target, change)  # raises with the nearest names
        for path, node in found:
            for name, value in values.items():
                set_at(tree, f"{path}.{name}" if path else name, value)
            del node
        return tree

    return apply
