"""How the names in one ``shard_map`` call fall onto the mesh.

Within a call a logical name must mean the same split for every array: were a weight's "embed" split and an activation's
not, the function would multiply shards that don't match. So names are resolved once for the call, as the dims of one
imaginary array in the order in which they first occur; but those that may share mesh axes with others, each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ._rules import DimChoice, ShardingRuleError

Axes: TypeAlias = Sequence[str | None]
"""Logical names of an array's dims, None where a dim has none."""

Resolve: TypeAlias = Callable[[Axes, Sequence[int], str], tuple[DimChoice, ...]]


def names_to_mesh_axes(
    in_axes: Sequence[Axes], shapes: Sequence[Sequence[int]], resolve: Resolve, sharing: Sequence[str] = ()
) -> Mapping[str, tuple[str, ...]]:
    """The mesh axes that each name is split over; names that aren't split are left out."""
    sizes: dict[str, int] = {}
    for axes, shape in zip(in_axes, shapes, strict=True):
        if len(axes) != len(shape):
            raise ShardingRuleError(f"a sharded call gives the axes {tuple(axes)} for an array of shape {tuple(shape)}")
        for name, size in zip(axes, shape, strict=True):
            if name is not None:
                # A split must divide every dim of that name: it divides their greatest common divisor.
                sizes[name] = math.gcd(sizes.get(name, 0), size)
    groups = [[name for name in sizes if name not in sharing], *([name] for name in sizes if name in sharing)]
    split: dict[str, tuple[str, ...]] = {}
    for names in groups:
        choices = resolve(names, [sizes[name] for name in names], f"a sharded call over the axes {tuple(names)}")
        split |= {name: choice.mesh_axes for name, choice in zip(names, choices, strict=True) if choice.mesh_axes}
    for name in groups[0]:
        for other in sharing:
            meet = any(name in axes and other in axes for axes in in_axes)
            if meet and set(split.get(name, ())) & set(split.get(other, ())):
                del split[name]
    for axes in in_axes:
        for name in split:
            if list(axes).count(name) > 1:
                raise ShardingRuleError(
                    f"a sharded call has {name!r}, which is split, twice in one array: {tuple(axes)}"
                )
    return split
