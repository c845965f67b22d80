"""Replacing parts of a tree: what is carried over, what is dropped, and what may stay open.

A parent fills the *interface* fields of a child (those declared ``= REQUIRED``: widths, say) when it builds it. So the part
that comes in needs nothing of the one that goes, unless an interface field was set by hand; that is carried over. What
the new config leaves open must have been open in the old one too, or nobody would ever fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import FunctionType
from typing import NamedTuple, TypeVar, cast, overload

from ._callables import signature_of
from ._config import Config, default_of, path_to, same
from ._errors import ConfigError, MissingFieldError, NoMatchError, nearest
from ._fields import REQUIRED
from ._provenance import acting, says_all
from ._tree import set_at, walk
from .selectors import Target, selected

T = TypeVar("T")
ConfigT = TypeVar("ConfigT", bound=Config[object])
PartT = TypeVar("PartT", bound=Config[object])


class Replacement(NamedTuple):
    """One part that was replaced: where, by what, and what became of its fields."""

    path: str
    before: str
    after: str
    carried: tuple[str, ...]
    dropped: tuple[str, ...]
    """Fields that differed from their default and have no successor of the same value."""

    @property
    def fate(self) -> str:
        """What became of the old config's fields, if there is anything to say."""
        told = (("carried", self.carried), ("dropped", self.dropped))
        return "; ".join(f"{what} {', '.join(names)}" for what, names in told if names)

    def __str__(self) -> str:
        """A line for people."""
        change = f"{self.path or 'the root'}: {self.before} → {self.after}"
        return f"{change}; {self.fate}" if self.fate else change


@overload
def replace(
    config: ConfigT,
    target: type[PartT],
    new: Config[object] | Callable[[PartT], Config[object]],
    *,
    carry: Collection[str] = ...,
    report: Callable[[Replacement], object] | None = ...,
) -> ConfigT: ...
@overload
def replace(
    config: ConfigT,
    target: type[T],
    new: Config[object] | Callable[[Config[T]], Config[object]],
    *,
    carry: Collection[str] = ...,
    report: Callable[[Replacement], object] | None = ...,
) -> ConfigT: ...
@overload
def replace(
    config: ConfigT,
    target: str | Callable[[Config[object]], bool],
    new: Config[object] | Callable[[Config[object]], Config[object]],
    *,
    carry: Collection[str] = ...,
    report: Callable[[Replacement], object] | None = ...,
) -> ConfigT: ...
def replace(
    config: ConfigT,
    target: Target,
    new: Config[object] | Callable[..., Config[object]],
    *,
    carry: Collection[str] = (),
    report: Callable[[Replacement], object] | None = None,
) -> ConfigT:
    """A new tree in which every config that ``target`` selects is ``new``, or ``new(old)``.

    Selected configs inside selected ones go with them. Interface fields that were set in the old config and are open in
    the new one are carried over.

    Args:
        config: The tree; it is left alone.
        target: What to replace; see ``selectors``.
        new: What to put there, or a function that makes it from what stood there. A type checker knows what stood there
            where the target is a class: of configs themselves, or the ``Config[T]`` of a class ``T`` that they build.
        carry: More fields to take over from the old config.
        report: Told of each replacement (``print`` will do).

    Raises:
        NoMatchError: ``target`` selected nothing, or ``carry`` names a field that one of the two doesn't have.
        MissingFieldError: The new config leaves a field open that the old one didn't leave to its parent.
    """
    return replace_in(config.clone(), target, new, carry=carry, report=report)


def replace_in(
    tree: ConfigT,
    target: Target,
    new: Config[object] | Callable[..., Config[object]],
    *,
    carry: Collection[str] = (),
    report: Callable[[Replacement], object] | None = None,
) -> ConfigT:
    """What ``replace`` does, on a tree that is the caller's own."""
    for path, old in selected(tree, target):
        if _root_of(old) is not tree:
            continue  # it went with a config around it
        fresh = _made(path, old, new).clone()
        carried = [*_interface(old, fresh), *carry]
        with acting(f"replace: carried over from {type(old).__qualname__}"):
            for name in carried:
                _check_carried(path, name, old, fresh)
                setattr(fresh, name, old.__dict__[name])
        _check_open(path, old, fresh)
        done = Replacement(
            path, type(old).__qualname__, type(fresh).__qualname__, (*carried,), (*_dropped(old, fresh),)
        )
        if report is not None:
            report(done)
        if path == "":
            return cast("ConfigT", fresh)
        with acting(done, says_all=says_all()):
            set_at(tree, path, fresh)
    return tree


def _made(path: str, old: Config[object], new: object) -> Config[object]:
    made = new(old) if callable(new) and not isinstance(new, Config) else new
    if not isinstance(made, Config):
        told = f"{new.__qualname__} gave {made!r}" if isinstance(new, type | FunctionType) else f"got {made!r}"
        raise ConfigError(
            f"{path or 'the root'}: what replaces a config is a config, or a function that makes one; {told}"
        )
    return made


def _root_of(node: Config[object]) -> Config[object]:
    while node._ax_parent is not None:
        node = node._ax_parent
    return node


def _interface(old: Config[object], fresh: Config[object]) -> list[str]:
    fields = type(fresh).__ax_fields__
    return [n for n in fresh._open_fields() if fields[n].default is REQUIRED and n in old.__dict__]


def _check_carried(path: str, name: str, old: Config[object], fresh: Config[object]) -> None:
    for config in (old, fresh):
        if name not in type(config).__ax_fields__:
            kind = type(config).__qualname__
            raise NoMatchError(
                f"{path or 'the root'}: {name!r} can't be carried, {kind} has no such field; "
                f"{nearest(name, type(config).__ax_fields__)}"
            )
    if name not in old.__dict__:
        raise NoMatchError(f"{path_to(old, name)} is not set, so it can't be carried")


def _check_open(path: str, old: Config[object], fresh: Config[object]) -> None:
    left = [n for n in fresh._open_fields() if n not in type(old).__ax_fields__ or n in old.__dict__]
    target = type(old).__ax_target__
    if left and target is not None:  # what its parent gave to the old one's class beside its fields
        parameters = signature_of(target).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            return
        left = [n for n in left if n in old.__dict__ or all(n != p.name for p in parameters)]
    if left:
        names = ", ".join(f"{path}.{name}" if path else name for name in left)
        raise MissingFieldError(
            f"{type(fresh).__qualname__} leaves {names} open, which the {type(old).__qualname__} that it replaces did "
            "not, so nobody would fill it; set it in the new config, or carry it"
        )


def _dropped(old: Config[object], fresh: Config[object]) -> list[str]:
    if type(old) is type(fresh) or any(same(node, old) for _, node in walk(fresh)):
        return []  # or the old config went on as a part of the new one
    dropped = []
    for name, value in old.__dict__.items():
        if not same(value, default_of(type(old), name)) and not (
            name in fresh.__dict__ and same(value, fresh.__dict__[name])
        ):
            dropped.append(name)
    return dropped
