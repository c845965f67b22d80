"""Lists and dicts as configs hold them: equal to plain ones, and read-only.

A list that could be changed in place would change unchecked, and could take in a config of another tree. Pickles and
copies of these are plain.
"""

from __future__ import annotations

from typing import NoReturn, TypeVar

T = TypeVar("T")


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    kind = "list" if isinstance(self, list) else "dict"
    raise TypeError(f"a {kind} in a config is read-only: assign a new {kind} to the field, or use set_at for one item")


class FrozenList(list[T]):
    """A list that can't be changed."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)


class FrozenDict(dict[str, T]):
    """A dict that can't be changed."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    pop = popitem = clear = update = setdefault = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


def thawed(value: object) -> object:
    """The value with plain lists and dicts in it, all the way down."""
    if isinstance(value, list):
        return [thawed(item) for item in value]
    if isinstance(value, dict):
        return {k: thawed(v) for k, v in value.items()}
    if type(value) is tuple:
        return tuple(thawed(item) for item in value)
    return value
