"""How many devices stand along each axis of a mesh, when some of the sizes are left open.

A mesh may be hybrid: ``axes`` are the sizes within a group of devices that fast links join (a TPU slice, an NVLink domain),
and ``between`` those between groups. A size of -1 is inferred, one in each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_MOST_SHOWN = 8


class AxisSizeError(ValueError):
    """The sizes of a mesh's axes don't fit the devices."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of the same axes, in the mesh's order, within a group of devices and between groups."""

    within: Mapping[str, int]
    between: Mapping[str, int]

    def total(self) -> dict[str, int]:
        """Of the whole mesh."""
        return {name: size * self.between[name] for name, size in self.within.items()}


def resolve(axes: Mapping[str, int], between: Mapping[str, int], num_devices: int, num_groups: int | None, /) -> Sizes:
    """The sizes with none left open. Axes that are only ``between`` come first: their links are the slowest.

    ``num_groups`` is None where the sizes decide it. Raises AxisSizeError with the sizes that would be legal.
    """
    names = [*(name for name in between if name not in axes), *axes]
    if not between and num_groups in (None, 1):
        return Sizes(resolve_axes(axes, num_devices), dict.fromkeys(names, 1))
    if not between:
        raise AxisSizeError(
            f"the {num_devices} devices are in {num_groups} slices: name the axes that go between them, such as "
            f"between={{{names[0]!r}: -1}}; axes ({_written(axes)}) are then the sizes within one slice"
        )
    number = _num_groups(axes, between, num_devices) if num_groups is None else num_groups
    per_group = num_devices // number
    faults = [
        f"{what} {_written(sizes)} for {count} {unit}: {fault}. Legal are: {_legal(sizes, count)}"
        for what, sizes, count, unit in (
            ("axes", axes, per_group, "devices in each group"),
            ("between", between, number, "groups (slices, nodes)"),
        )
        if (fault := _fault(sizes, count))
    ]
    if num_devices % number:
        faults.insert(0, f"{num_devices} devices can't be {number} equal groups")
    if faults:
        raise AxisSizeError(f"a mesh over {num_devices} devices in {number} groups doesn't fit: {'; '.join(faults)}")
    inner, outer = _inferred(axes, per_group), _inferred(between, number)
    return Sizes({name: inner.get(name, 1) for name in names}, {name: outer.get(name, 1) for name in names})


def resolve_axes(axes: Mapping[str, int], num_devices: int, /) -> dict[str, int]:
    """``axes`` with the one of size -1 set such that their product is ``num_devices``.

    Raises AxisSizeError with the sizes that would be legal.
    """
    if fault := _fault(axes, num_devices):
        raise AxisSizeError(
            f"a mesh of {_written(axes)} doesn't fit {num_devices} devices: {fault}. Legal are: {_legal(axes, num_devices)}"
        )
    return _inferred(axes, num_devices)


def _num_groups(axes: Mapping[str, int], between: Mapping[str, int], num_devices: int) -> int:
    _check(axes)
    _check(between)
    if -1 not in between.values():
        return math.prod(between.values())
    if -1 not in axes.values():
        return max(1, num_devices // math.prod(axes.values()))
    raise AxisSizeError(
        f"how many groups the {num_devices} devices form isn't known, so only one of axes ({_written(axes)}) and "
        f"between ({_written(between)}) may have a -1"
    )


def _check(sizes: Mapping[str, int]) -> None:
    if not sizes:
        raise AxisSizeError('a mesh needs at least one axis, such as {"data": -1}')
    if any(size < 1 and size != -1 for size in sizes.values()):
        raise AxisSizeError(f"axis sizes are positive, or -1 for the one to infer; got {_written(sizes)}")
    if sum(size == -1 for size in sizes.values()) > 1:
        raise AxisSizeError(f"at most one axis may be -1 (inferred); got {_written(sizes)}")


def _fault(sizes: Mapping[str, int], number: int) -> str:
    """Why these sizes can't make ``number``; empty if they can."""
    _check(sizes)
    fixed = math.prod(size for size in sizes.values() if size != -1)
    if -1 in sizes.values():
        return f"the fixed sizes have the product {fixed}, which doesn't divide {number}" if number % fixed else ""
    return f"their product is {fixed}" if fixed != number else ""


def _inferred(sizes: Mapping[str, int], number: int) -> dict[str, int]:
    fixed = math.prod(size for size in sizes.values() if size != -1)
    return {name: number // fixed if size == -1 else size for name, size in sizes.items()}


def _legal(sizes: Mapping[str, int], number: int) -> str:
    legal = itertools.islice(_nearest_first(tuple(sizes.values()), number), _MOST_SHOWN + 1)
    shown = [_written(dict(zip(sizes, found, strict=True))) for found in legal]
    return "; ".join(shown[:_MOST_SHOWN]) + ("; …" if len(shown) > _MOST_SHOWN else "")


def _written(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def factorings(number: int, num_factors: int, /) -> Iterator[tuple[int, ...]]:
    """All ways to write ``number`` as a product of ``num_factors`` positive factors, order told apart."""
    if num_factors == 0:
        if number == 1:
            yield ()
        return
    if num_factors == 1:
        yield (number,)
        return
    for factor in range(1, number + 1):
        if number % factor == 0:
            for rest in factorings(number // factor, num_factors - 1):
                yield (factor, *rest)


def _nearest_first(sizes: tuple[int, ...], num_devices: int) -> list[tuple[int, ...]]:
    """Legal sizes, those first that keep most of the sizes asked for."""

    def changed(candidate: tuple[int, ...]) -> int:
        return sum(size not in (-1, new) for size, new in zip(sizes, candidate, strict=True))

    return sorted(factorings(num_devices, len(sizes)), key=changed)
