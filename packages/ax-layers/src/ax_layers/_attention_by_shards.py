"""Attention on each device's own shard of queries, keys and values: what every way to split it by the sequence shares.

Batch and heads are independent, so a device needs nothing from others for them; what it needs along the sequence is for ``attend``
to send and fetch, by the collectives of ``jax.lax``. Here the arrays are brought to the devices: positions are written out,
since a row's place in a shard isn't its place in the text, and a device is given the key heads that its query heads look at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .protocols import Axes, Sharder

_HEADS: Axes = ("batch", "seq", "heads", None)
_KV_HEADS: Axes = ("batch", "seq", "kv_heads", None)
_WHOLE_KV_HEADS: Axes = ("batch", "seq", None, None)
_ROWS: Axes = ("batch", "seq")


class Rows(NamedTuple):
    """Where rows of queries or keys stand, ``[B, L]`` int32."""

    positions: jax.Array
    segments: jax.Array | None


class Shard(NamedTuple):
    """What one device has of a call of attention; shapes are as in ``AttentionFn``."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    queries: Rows
    keys: Rows
    seq: tuple[str, ...]
    """The axes that the sequence is split over, for collectives; empty if it's whole."""
    rows: tuple[str, ...]
    """The axes over which positions and segments differ: those of the sequence and of the batch."""


def attend_by_shards(
    sharder: Sharder,
    attend: Callable[[Shard], jax.Array],
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    /,
    *,
    query_positions: jax.Array | None,
    key_positions: jax.Array | None,
    query_segments: jax.Array | None,
    key_segments: jax.Array | None,
) -> jax.Array:
    """``attend`` on the shard of every device, and the outputs together ``[B, T, N, H]``.

    Raises:
        ValueError: Only one of ``query_segments`` and ``key_segments`` is given.
    """
    if (query_segments is None) != (key_segments is None):
        raise ValueError("attention takes query_segments and key_segments together; only one was given")
    places = Rows(_numbered(query_positions, query), query_segments), Rows(_numbered(key_positions, key), key_segments)
    leaves, structure = jax.tree.flatten(places)
    arrays = [query, key, value, *leaves]

    def axes(of_keys: Axes) -> list[Axes]:
        return [_HEADS, of_keys, of_keys, *(_ROWS for _ in leaves)]

    def split(of_keys: Axes) -> dict[str, tuple[str, ...]]:
        return dict(sharder.split(axes(of_keys), [x.shape for x in arrays], sharing=sharing(of_keys)))

    def sharing(of_keys: Axes) -> tuple[str, ...]:
        return tuple(name for name in of_keys if name == "kv_heads")

    # Where key heads aren't split as query heads are, for there are fewer of them perhaps, devices have them all.
    parts = split(_KV_HEADS)
    aligned = parts.get("heads", ()) == parts.get("kv_heads", ())
    of_keys = _KV_HEADS if aligned else _WHOLE_KV_HEADS
    parts = split(of_keys)
    heads, seq = parts.get("heads", ()), parts.get("seq", ())
    group = query.shape[2] // key.shape[2]

    def on_one_device(query: jax.Array, key: jax.Array, value: jax.Array, *leaves: jax.Array) -> jax.Array:
        queries, keys = jax.tree.unflatten(structure, leaves)
        if not aligned:
            first = place_in(heads) * query.shape[2]
            key, value = (_looked_at(x, first, query.shape[2], group) for x in (key, value))
        return attend(Shard(query, key, value, queries, keys, seq, (*parts.get("batch", ()), *seq)))

    call = sharder.shard_map(on_one_device, in_axes=axes(of_keys), out_axes=_HEADS, sharing=sharing(of_keys))
    return call(*arrays)


def place_in(axes: tuple[str, ...]) -> jax.Array:
    """Which of the shards along ``axes`` this device has."""
    return jax.lax.axis_index(axes) if axes else jnp.zeros((), jnp.int32)


def number_in(axes: tuple[str, ...]) -> int:
    """How many shards there are along ``axes``."""
    return int(jax.lax.psum(1, axes))


def _looked_at(x: jax.Array, first: jax.Array, num_heads: int, group: int) -> jax.Array:
    """Of all key heads those that the ``num_heads`` query heads from ``first`` on look at, ``group`` of them at one."""
    if num_heads % group and group % num_heads:
        return jnp.take(x, (first + jnp.arange(num_heads, dtype=jnp.int32)) // group, axis=2)
    return jax.lax.dynamic_slice_in_dim(x, first // group, max(1, num_heads // group), axis=2)


def _numbered(positions: jax.Array | None, rows: jax.Array) -> jax.Array:
    if positions is not None:
        return positions.astype(jnp.int32)
    return jnp.broadcast_to(jnp.arange(rows.shape[1], dtype=jnp.int32), rows.shape[:2])
