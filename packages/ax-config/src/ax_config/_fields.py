"""What a config class knows of each of its fields."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, overload

T = TypeVar("T")


class _Mark(enum.Enum):
    REQUIRED = enum.auto()
    ABSENT = enum.auto()

    def __repr__(self) -> str:
        return self.name


REQUIRED: Final[Any] = _Mark.REQUIRED
"""The default of a field that is left open and has to be filled before ``build``, often by the parent.

Given as a value it leaves a field open, or opens it: ``config_for(optax.adamw)(learning_rate=REQUIRED)``. Typed ``Any`` since it stands in for a value of every field's type.
"""

ABSENT: Final = _Mark.ABSENT
"""No default: the constructor wants a value."""


class Field(NamedTuple):
    """One field of a config class.

    Attributes:
        name: The attribute's name.
        annotation: Its type as written, a string or a type.
        default: The value it starts with; ``REQUIRED`` for open, ``ABSENT`` for none.
        default_factory: Makes the value it starts with, for values that have to be fresh (configs).
        help: A sentence for people.
        optional: May stay unset at ``build`` (a third-party callable's parameter whose default no config can hold).
        role: What a config in this field is for; the field's name if empty. See ``role`` among the selectors.
    """

    name: str
    annotation: object
    default: object = ABSENT
    default_factory: Callable[[], object] | None = None
    help: str = ""
    optional: bool = False
    role: str = ""


class FieldSpec(NamedTuple):
    """What ``field(…)`` leaves in a class body until the class is made."""

    default: object
    default_factory: Callable[[], object] | None
    help: str
    role: str


@overload
def field(*, default: T, help: str = ..., role: str = ...) -> T: ...
@overload
def field(*, default_factory: Callable[[], T], help: str = ..., role: str = ...) -> T: ...
@overload
def field(*, help: str = ..., role: str = ...) -> Any: ...
def field(
    *, default: object = ABSENT, default_factory: Callable[[], object] | None = None, help: str = "", role: str = ""
) -> object:
    """Describe a field beyond its type: ``field(default_factory=Child.Config)``, ``field(default=3, help="…")``.

    Args:
        default: The value that the field starts with.
        default_factory: Called for each new config; for defaults that are configs, lists or dicts.
        help: A sentence for people, shown by tools.
        role: What a config in this field is for ("ffn", "norm"), to be selected by; the field's name if not given.
    """
    if default is not ABSENT and default_factory is not None:
        raise TypeError("field: give default or default_factory, not both")
    return FieldSpec(default, default_factory, help, role)
