"""Where what an optimizer remembers of a parameter lies, which needn't have the parameter's shape.

It lies as the parameter does, dim by dim: an array that lacks one of its dims (Adafactor's second moments, a mean over that dim) is split
along the others; of one with other sizes (a scale for each block of a row; a basis of the rows) each dim is split as the parameter's
if it can be divided so. What has nothing in common with it is whole on every device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import jax

Entry: TypeAlias = "str | tuple[str, ...] | None"


def sharding_like(shape: tuple[int, ...], parameter: jax.ShapeDtypeStruct) -> jax.sharding.Sharding | None:
    """The sharding of an array of this shape that belongs to a parameter; None if it is to be whole."""
    sharding: jax.sharding.Sharding | None = parameter.sharding
    if shape == parameter.shape:
        return sharding
    if not isinstance(sharding, jax.NamedSharding):
        return None
    entries: list[Entry] = [*sharding.spec, *[None] * (len(parameter.shape) - len(sharding.spec))]
    if len(shape) == len(parameter.shape):
        return _with(sharding, shape, entries)
    without = [
        [entry for dim, entry in enumerate(entries) if dim != left_out]
        for left_out in range(len(parameter.shape))
        if (*parameter.shape[:left_out], *parameter.shape[left_out + 1 :]) == shape
    ]
    if not without:
        return None
    return max(
        (_with(sharding, shape, kept) for kept in without), key=lambda placed: -math.prod(placed.shard_shape(shape))
    )


def _with(sharding: jax.NamedSharding, shape: tuple[int, ...], entries: Sequence[Entry]) -> jax.NamedSharding:
    """On the same mesh, without entries that don't divide their dim."""
    kept = [
        entry if size % _parts(sharding.mesh, entry) == 0 else None for size, entry in zip(shape, entries, strict=True)
    ]
    return jax.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*kept), memory_kind=sharding.memory_kind)


def _parts(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh, entry: Entry) -> int:
    axes = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
    return math.prod(mesh.shape[axis] for axis in axes)
