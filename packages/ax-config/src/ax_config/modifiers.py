"""The modifiers that others are made of. The functions make them; the classes give them their names in texts.

- ``chain(a, b)``: one after the other
- ``when(target, a, otherwise=b)``: if the tree has such a part
- ``for_each(target, a)``: on each such part
- ``replacing(target, new)``: put another part in place
- ``setting(target, name=value)``: set fields
- ``overriding("path=value")``: as on a command line
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar, overload

from ._config import Config
from ._modifier import Modifier, applied
from ._override import override
from ._replace import replace_in
from ._tree import get_at, set_at
from .selectors import Target, select, selected

T = TypeVar("T")
ConfigT = TypeVar("ConfigT", bound=Config[object])
PartT = TypeVar("PartT", bound=Config[object])


class Chain(Modifier):
    """Applies modifiers from left to right."""

    modifiers: tuple[Callable[[Config[object]], Config[object]], ...] = ()

    def apply(self, tree: Config[object]) -> Config[object]:
        """Apply them."""
        for modifier in self.modifiers:
            tree = applied(modifier, tree)
        return tree


class When(Modifier):
    """Applies a modifier to trees that have a part of a kind, and maybe another to those that have none."""

    target: Target
    then: Callable[[Config[object]], Config[object]]
    otherwise: Callable[[Config[object]], Config[object]] | None = None

    def apply(self, tree: Config[object]) -> Config[object]:
        """Look, and apply one of them or none."""
        chosen = self.then if select(tree, self.target) else self.otherwise
        return tree if chosen is None else applied(chosen, tree)


class ForEach(Modifier):
    """Applies a modifier to every part of a kind, as if it were a tree of its own; inner parts first."""

    target: Target
    modifier: Callable[[Config[object]], Config[object]]

    def apply(self, tree: Config[object]) -> Config[object]:
        """Apply it; the target has to select something."""
        for path, _ in reversed(selected(tree, self.target)):
            part = get_at(tree, path)
            assert isinstance(part, Config)
            changed = applied(self.modifier, part.clone())
            if path == "":
                return changed
            set_at(tree, path, changed)
        return tree


class Replacing(Modifier):
    """Replaces every part of a kind."""

    target: Target
    new: Config[object] | Callable[[Config[object]], Config[object]]
    carry: tuple[str, ...] = ()

    def apply(self, tree: Config[object]) -> Config[object]:
        """Replace them; the target has to select something."""
        return replace_in(tree, self.target, self.new, carry=self.carry)


class Setting(Modifier):
    """Sets fields on every part of a kind."""

    target: Target
    values: dict[str, object]

    def apply(self, tree: Config[object]) -> Config[object]:
        """Set them; the target has to select something."""
        for _, node in selected(tree, self.target):
            for name, value in self.values.items():
                set_at(node, name, value)
        return tree


class Overriding(Modifier):
    """Sets values by path, as on a command line."""

    assignments: tuple[str, ...]

    def apply(self, tree: Config[object]) -> Config[object]:
        """Set them in order."""
        return override(tree, self.assignments)


def chain(*modifiers: Callable[[ConfigT], ConfigT]) -> Chain:
    """The modifier that applies ``modifiers`` from left to right; none of them gives the identity (a copy)."""
    return Chain(modifiers=modifiers)  # type: ignore[arg-type]  # each is for some class of trees; it is the same for all


def when(
    target: Target, then: Callable[[ConfigT], ConfigT], otherwise: Callable[[ConfigT], ConfigT] | None = None
) -> When:
    """The modifier that applies ``then`` to trees in which ``target`` selects something, else ``otherwise``."""
    return When(target=target, then=then, otherwise=otherwise)  # type: ignore[arg-type]  # as in chain


def for_each(target: Target, modifier: Callable[[PartT], PartT]) -> ForEach:
    """The modifier that applies ``modifier`` to each part that ``target`` selects, as to a tree of its own.

    Raises:
        NoMatchError: When applied to a tree in which ``target`` selects nothing; so do the two below.
    """
    return ForEach(target=target, modifier=modifier)  # type: ignore[arg-type]  # as in chain


@overload
def replacing(
    target: type[PartT], new: Config[object] | Callable[[PartT], Config[object]], *, carry: Collection[str] = ...
) -> Replacing: ...
@overload
def replacing(
    target: type[T], new: Config[object] | Callable[[Config[T]], Config[object]], *, carry: Collection[str] = ...
) -> Replacing: ...
@overload
def replacing(
    target: str | Callable[[Config[object]], bool],
    new: Config[object] | Callable[[Config[object]], Config[object]],
    *,
    carry: Collection[str] = ...,
) -> Replacing: ...
def replacing(
    target: Target, new: Config[object] | Callable[..., Config[object]], *, carry: Collection[str] = ()
) -> Replacing:
    """The modifier that puts ``new`` in place of every config that ``target`` selects; see ``replace``."""
    return Replacing(target=target, new=new, carry=tuple(carry))


def setting(target: Target, /, **values: object) -> Setting:
    """The modifier that sets fields on every config that ``target`` selects."""
    return Setting(target=target, values=values)


def overriding(*assignments: str) -> Overriding:
    """The modifier that sets values by path: ``overriding("model.**.dropout=0.1")``; see ``override``."""
    return Overriding(assignments=assignments)
