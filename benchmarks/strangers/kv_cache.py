"""A key-value cache of small integers, in a ring if wanted (with fewer bits and other groups: KIVI, arXiv:2402.02750).

Each head of each row is cut into as many pieces as it has scales; a piece is kept as integers times its scale. Two integers
of 4 bits lie in a byte. With a window, the cache has no more slots than that, and the attention sees no further.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict, TypeVar

import ax_config
import jax
import jax.numpy as jnp
from ax_config import Config, setting
from ax_layers import Attention

ConfigT = TypeVar("ConfigT", bound=Config[object])

Bits = Literal[4, 8]


class Quantised(TypedDict):
    """``[B, S, K, H]`` as integers ``[B, S, K, H · bits / 8]`` int8, and their scales ``[B, S, K, scales a head]``."""

    integers: jax.Array
    scales: jax.Array


def quantised(x: jax.Array, bits: Bits, num_scales: int, dtype: jax.typing.DTypeLike) -> Quantised:
    """Each piece's largest element becomes the largest integer."""
    pieces = x.astype(jnp.float32).reshape(*x.shape[:-1], num_scales, -1)
    limit = 2 ** (bits - 1) - 1
    scales = (jnp.maximum(jnp.abs(pieces).max(axis=-1), 1e-30) / limit).astype(dtype)
    steps = jnp.round(pieces / scales.astype(jnp.float32)[..., None])
    integers = jnp.clip(steps, -limit, limit).astype(jnp.int8).reshape(x.shape)
    if bits == 4:
        low, high = jnp.split(integers, 2, axis=-1)
        integers = (high << 4) | (low & 15)
    return Quantised(integers=integers, scales=scales)


def exact(x: Quantised, bits: Bits) -> jax.Array:
    """``[B, S, K, H]`` in the scales' type."""
    integers, scales = x["integers"], x["scales"]
    if bits == 4:
        integers = jnp.concatenate([(integers << 4) >> 4, integers >> 4], axis=-1)
    pieces = integers.reshape(*scales.shape, -1).astype(scales.dtype)
    return (pieces * scales[..., None]).reshape(integers.shape)


class State(TypedDict):
    """Keys and values, and the position in each slot ``[B, S]`` (-1: empty)."""

    key: Quantised
    value: Quantised
    positions: jax.Array


class QuantisedKVCache:
    """Fits ``KVCache``. With a window it fits ``SupportsWindow``, and sequences are read in order, without gaps."""

    window: int

    class Config(ax_config.Config["QuantisedKVCache"]):
        """How exactly, and how many."""

        key_bits: Bits = 8
        value_bits: Bits = 8
        num_scales: int = 1  # for a head
        window: int | None = None  # how many of the latest positions to keep; None: all

    def __init__(self, cfg: Config, /) -> None:
        self._cfg = cfg
        if cfg.window is not None:  # else there is no such attribute, and nothing is promised by it
            self.window = cfg.window

    def init(
        self, *, batch_size: int, max_length: int, num_kv_heads: int, head_dim: int, dtype: jax.typing.DTypeLike
    ) -> State:
        """An empty state; scales are of the ``dtype``."""
        num_slots = max_length if self._cfg.window is None else min(max_length, self._cfg.window)
        zeros = jnp.zeros((batch_size, num_slots, num_kv_heads, head_dim))
        return self._rows(zeros, zeros, jnp.full((batch_size, num_slots), -1, jnp.int32), dtype)

    def update(
        self, state: State, key: jax.Array, value: jax.Array, positions: jax.Array, /
    ) -> tuple[State, jax.Array, jax.Array, jax.Array]:
        """Add the rows, rounded; what is given back is rounded, too."""
        rows = self._rows(key, value, positions, state["key"]["scales"].dtype)
        num_slots = state["positions"].shape[1]
        slots, kept = positions, positions >= 0
        if self._cfg.window is not None:
            slots = positions % num_slots
            kept &= positions > positions.max(axis=1, keepdims=True) - num_slots
        slots = jnp.where(kept, slots, num_slots)  # past the end, where nothing is written
        batch = jnp.arange(len(slots))[:, None]
        new = jax.tree.map(lambda old, row: old.at[batch, slots].set(row, mode="drop"), state, rows)
        seen = new
        if self._cfg.window is not None and positions.shape[1] > 1:  # the first rows see what the last push out
            seen = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), state, rows)
        return (
            new,
            exact(seen["key"], self._cfg.key_bits),
            exact(seen["value"], self._cfg.value_bits),
            seen["positions"],
        )

    def _rows(self, key: jax.Array, value: jax.Array, positions: jax.Array, dtype: jax.typing.DTypeLike) -> State:
        cfg = self._cfg
        return State(
            key=quantised(key, cfg.key_bits, cfg.num_scales, dtype),
            value=quantised(value, cfg.value_bits, cfg.num_scales, dtype),
            positions=positions,
        )


_Cache = QuantisedKVCache.Config
VARIANTS: Mapping[str, QuantisedKVCache.Config] = {
    "int8": _Cache(),
    "int8, 2 scales": _Cache(num_scales=2),
    "int8, 4 scales": _Cache(num_scales=4),
    "int4": _Cache(key_bits=4, value_bits=4),
    "int4, 4 scales": _Cache(key_bits=4, value_bits=4, num_scales=4),
    "int8 keys, int4 values": _Cache(value_bits=4),
    "int8 keys, int4 values, 4 scales": _Cache(value_bits=4, num_scales=4),
    "int8, a ring of 1024": _Cache(window=1_024),
    "int4, 4 scales, a ring of 1024": _Cache(key_bits=4, value_bits=4, num_scales=4, window=1_024),
    "int8, a ring of 16": _Cache(window=16),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """Every attention remembers integers, and no more of them than it sees."""
    cache = VARIANTS[variant]
    if cache.window is None:
        return setting(Attention, kv_cache=cache)(tree)
    return setting(Attention, kv_cache=cache, window=cache.window)(tree)
