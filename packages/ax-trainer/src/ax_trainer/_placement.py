"""Where what an optimizer remembers of a parameter lies, which needn't have the parameter's shape.

It lies as the parameter does, dim by dim: an array that lacks one of its dims (Adafactor's second moments, a mean over that dim) is split
along the others; of one with other sizes (a scale for each block of a row; a basis of the rows) each dim is split as the parameter's
if it can be divided so; of one with another number of dims (a basis of all heads) those in front that are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import jax

Entry: TypeAlias = "str | tuple[str, ...] | None"


def sharding_like(shape: tuple[int, ...], parameter: jax.ShapeDtypeStruct) -> jax.sharding.Sharding | None:
    """The sharding of an array of this shape that belongs to a parameter; None for the partitioner's own for what is whole."""
    sharding: jax.sharding.Sharding | None = parameter.sharding
    if shape == parameter.shape:
        return sharding
    if not isinstance(sharding, jax.NamedSharding):
        return None
    entries: list[Entry] = [*sharding.spec, *[None] * (len(parameter.shape) - len(sharding.spec))]
    without = [
        entries[:dim] + entries[dim + 1 :]
        for dim in range(len(entries))
        if parameter.shape[:dim] + parameter.shape[dim + 1 :] == shape
    ]
    if without:
        placed = (_with(sharding, shape, kept) for kept in without)
        return max(placed, key=lambda each: -math.prod(each.shard_shape(shape)))
    if len(shape) != len(parameter.shape):
        same = [size == other for size, other in zip(shape, parameter.shape, strict=False)]
        common = same.index(False) if False in same else len(same)
        entries = entries[:common] + [None] * (len(shape) - common)
    return _with(sharding, shape, entries)


def _with(sharding: jax.NamedSharding, shape: tuple[int, ...], entries: Sequence[Entry]) -> jax.NamedSharding:
    """On the same mesh, without entries that don't divide their dim."""
    kept = [
        entry if size % _parts(sharding.mesh, entry) == 0 else None for size, entry in zip(shape, entries, strict=True)
    ]
    return jax.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*kept), memory_kind=sharding.memory_kind)


def _parts(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh, entry: Entry) -> int:
    axes = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
    return math.prod(mesh.shape[axis] for axis in axes)
