"""Arrays from one live mesh to another, without a disk, in bounded memory.

A job that loses a slice, or is given one, goes on with the state that it has: ``reshard`` moves it to the new mesh, whose
devices may be others, more, fewer, or the same in another order. Arrays are moved one after the other, each shard of the new
mesh put together from the old shards that overlap it, in pieces: a piece is cut out on a device that has it, sent, and
written in its place before the next is cut. So no device, and no host, ever holds a whole array that it isn't to keep.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
from jax.sharding import Sharding

Tree = TypeVar("Tree")

Box: TypeAlias = tuple[tuple[int, int], ...]
"""Where a part of an array begins and ends along each dim."""


def reshard(tree: Tree, shardings: object, /, *, max_bytes: int = 64 * 2**20, donate: bool = False) -> Tree:
    """``tree``, a pytree of arrays, laid out as ``shardings``, a congruent pytree, say; bit for bit the same.

    Beside the old and the new arrays, pieces of at most ``2 * max_bytes`` are alive at a time, over all devices together. With
    ``donate`` each old array is deleted when its new one is complete, so that there are two of one array only. An array that
    lies right already is handed on as it is.

    Arrays on devices of several processes are moved by JAX itself, one at a time, in whatever memory that takes.

    Raises ValueError when the trees differ, or an array has been deleted.
    """
    if max_bytes < 1:
        raise ValueError(f"max_bytes is at least 1, got {max_bytes}")
    move = functools.partial(_moved, max_bytes=max_bytes, donate=donate)
    return cast("Tree", jax.tree_util.tree_map_with_path(move, tree, shardings))


def _moved(path: tuple[object, ...], x: jax.Array, sharding: Sharding, *, max_bytes: int, donate: bool) -> jax.Array:
    if x.is_deleted():
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        raise ValueError(f"{name}: the array has been deleted, by donation or by hand, so it can't be moved")
    if x.sharding.is_equivalent_to(sharding, x.ndim):
        return x
    if x.is_fully_addressable and sharding.is_fully_addressable:
        moved = _by_pieces(x, sharding, max_bytes)
    else:
        moved = jax.block_until_ready(jax.device_put(x, sharding))
    if donate:
        x.delete()
    return moved


def _by_pieces(x: jax.Array, sharding: Sharding, max_bytes: int) -> jax.Array:
    sources = {_box(shard.index, x.shape): shard.data for shard in x.addressable_shards}
    made: dict[Box, jax.Array] = {}
    shards = []
    for device, index in sharding.addressable_devices_indices_map(x.shape).items():
        box = _box(index, x.shape)
        if box in made or box in sources:
            shard = _copied(made[box] if box in made else sources[box], device)
        else:
            shard = made[box] = _assembled(box, sources, device, x.dtype, max_bytes)
        shards.append(shard)
    return jax.make_array_from_single_device_arrays(x.shape, sharding, shards)


def _copied(shard: jax.Array, device: jax.Device) -> jax.Array:
    # Never the same buffer: the old array may be deleted.
    copy: jax.Array = jax.block_until_ready(jax.device_put(shard, device, may_alias=False))
    return copy


def _assembled(
    box: Box, sources: dict[Box, jax.Array], device: jax.Device, dtype: jnp.dtype, max_bytes: int
) -> jax.Array:
    shard = jnp.empty([stop - start for start, stop in box], dtype, device=device)
    for source, data in sources.items():
        common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, source, strict=True))
        if any(start >= stop for start, stop in common):
            continue
        for piece in _pieces(common, max_bytes // dtype.itemsize):
            cut = _cut(data, _offsets(piece, source), sizes=tuple(stop - start for start, stop in piece))
            # Waiting frees the piece before the next is cut, which is what bounds the memory.
            shard = jax.block_until_ready(_write(shard, _sent(cut, device), _offsets(piece, box)))
    return shard


def _sent(piece: jax.Array, device: jax.Device) -> jax.Array:
    arrived: jax.Array = jax.block_until_ready(jax.device_put(piece, device))
    return arrived


@functools.partial(jax.jit, static_argnames="sizes")
def _cut(shard: jax.Array, starts: Sequence[int], *, sizes: tuple[int, ...]) -> jax.Array:
    return jax.lax.bitcast_convert_type(jax.lax.dynamic_slice(_bits(shard), starts, sizes), shard.dtype)


@functools.partial(jax.jit, donate_argnums=0)
def _write(shard: jax.Array, piece: jax.Array, starts: Sequence[int]) -> jax.Array:
    whole = jax.lax.dynamic_update_slice(_bits(shard), _bits(piece), starts)
    return jax.lax.bitcast_convert_type(whole, shard.dtype)


def _bits(x: jax.Array) -> jax.Array:
    """Narrow floats as integers: XLA may slice them as float32 where a device can't compute in them, which alters NaNs."""
    narrow = jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4
    return jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}") if narrow else x


def _pieces(box: Box, max_size: int) -> Iterator[Box]:
    """``box`` cut into boxes of at most ``max_size`` elements, or one, along its first dims as far as need be."""
    steps = []
    inner = math.prod(stop - start for start, stop in box)
    for start, stop in box:
        inner //= stop - start
        steps.append(min(stop - start, max(1, max_size // inner)))
    cuts = (
        [(at, min(at + step, stop)) for at in range(start, stop, step)]
        for (start, stop), step in zip(box, steps, strict=True)
    )
    return itertools.product(*cuts)


def _box(index: tuple[slice, ...] | None, shape: tuple[int, ...]) -> Box:
    assert index is not None  # of arrays of a fixed shape
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def _offsets(inner: Box, outer: Box) -> list[int]:
    return [a - b for (a, _), (b, _) in zip(inner, outer, strict=True)]
