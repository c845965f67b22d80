"""Floats in eight bits each, block by block: an index into a table of 256 numbers, times the block's largest magnitude.

The tables are those of dynamic quantisation (Dettmers et al. 2021, arXiv:2110.02861, §2.1): seven decades, each with twice as
many numbers as the one below, so that small values keep their order of magnitude and large ones are told precisely. The
unsigned one is for values that aren't negative, and what is above zero in it stays above zero: a second moment that is rounded to
nothing would make an update endless. Values go to the nearest number; nothing is random.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np


@functools.cache
def table(*, signed: bool) -> np.ndarray:
    """The 256 numbers between -1, or 0, and 1, ascending, float32."""
    decades = []
    for exponent in range(7):
        num_values = 2 ** (exponent if signed else exponent + 1)
        edges = np.linspace(0.1, 1.0, num_values + 1)
        decades.append(10.0 ** (exponent - 6) * (edges[:-1] + edges[1:]) / 2)
    above_zero = np.concatenate(decades)
    below_zero = -above_zero if signed else np.empty(0)
    return np.sort(np.concatenate([below_zero, [0.0], above_zero, [1.0]])).astype(np.float32)


def encoded(x: jax.Array, *, block: int, signed: bool) -> tuple[jax.Array, jax.Array]:
    """``[…, N]`` floats → ``[…, N]`` uint8, and the largest magnitude of each block of the last dim, ``[…, ⌈N / block⌉]`` float32."""
    numbers = table(signed=signed)
    wide = x.astype(jnp.float32)
    short = -x.shape[-1] % block
    padded = jnp.pad(jnp.abs(wide), [*[(0, 0)] * (x.ndim - 1), (0, short)])
    largest = padded.reshape(*x.shape[:-1], -1, block).max(axis=-1)
    scaled = wide / _spread(jnp.where(largest > 0, largest, 1.0), x.shape[-1], block)
    between = jnp.asarray((numbers[:-1] + numbers[1:]) / 2)
    index = jnp.searchsorted(between, scaled, method="scan_unrolled")
    if not signed:
        index = jnp.where(scaled > 0, jnp.maximum(index, 1), index)
    return index.astype(jnp.uint8), largest


def decoded(index: jax.Array, largest: jax.Array, *, block: int, signed: bool) -> jax.Array:
    """What ``encoded`` gave, as float32 again."""
    numbers = jnp.asarray(table(signed=signed))
    return numbers[index.astype(jnp.int32)] * _spread(largest, index.shape[-1], block)


def _spread(of_blocks: jax.Array, length: int, block: int) -> jax.Array:
    """``[…, ⌈N / block⌉] → […, N]``, each block's for its values."""
    return jnp.repeat(of_blocks, block, axis=-1)[..., :length]
