"""How many devices stand along each axis of a mesh, when at most one of them is left open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

_MOST_SHOWN = 8


class AxisSizeError(ValueError):
    """The sizes of a mesh's axes don't fit the devices."""


def resolve_axes(axes: Mapping[str, int], num_devices: int, /) -> dict[str, int]:
    """``axes`` with the one of size -1 set such that their product is ``num_devices``.

    Raises AxisSizeError with the sizes that would be legal.
    """
    given = ", ".join(f"{name}={size}" for name, size in axes.items())
    if not axes:
        raise AxisSizeError('a mesh needs at least one axis, such as {"data": -1}')
    if any(size < 1 and size != -1 for size in axes.values()):
        raise AxisSizeError(f"axis sizes are positive, or -1 for the one to infer; got {given}")
    open_axes = [name for name, size in axes.items() if size == -1]
    if len(open_axes) > 1:
        raise AxisSizeError(f"at most one axis may be -1 (inferred); got {given}")
    fixed = math.prod(size for size in axes.values() if size != -1)
    if num_devices % fixed == 0 and (open_axes or fixed == num_devices):
        return {name: num_devices // fixed if size == -1 else size for name, size in axes.items()}
    legal = [
        ", ".join(f"{name}={size}" for name, size in zip(axes, sizes, strict=True))
        for sizes in itertools.islice(_nearest_first(tuple(axes.values()), num_devices), _MOST_SHOWN + 1)
    ]
    shown = "; ".join(legal[:_MOST_SHOWN]) + ("; …" if len(legal) > _MOST_SHOWN else "")
    fault = (
        f"the fixed sizes have the product {fixed}, which doesn't divide {num_devices}"
        if open_axes
        else f"their product is {fixed}"
    )
    raise AxisSizeError(f"a mesh of {given} doesn't fit {num_devices} devices: {fault}. Legal are: {shown}")


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
