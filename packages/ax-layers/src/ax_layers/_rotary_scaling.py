"""Rotary frequencies for texts longer than those trained on; each fits ``FrequencyScaling``.

A pair that turns by ``f`` a position has turned ``f · L / 2π`` times at the end of a text of length ``L``. Fast pairs tell
neighbours apart and may stay as they are; slow ones have never turned further than in training, so they have to be
slowed down by ``factor`` for a text that is longer by ``factor``. The ways differ in where they draw the line.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp


def linear_scaling(frequencies: jax.Array, /, *, factor: float = 1.0) -> jax.Array:
    """All slowed down: positions are interpolated (Chen et al. 2023, arXiv:2306.15595)."""
    return frequencies / factor


def ntk_scaling(frequencies: jax.Array, /, *, factor: float = 1.0) -> jax.Array:
    """The slowest slowed down by ``factor``, the fastest not at all: the same as ``theta · factor ** (R / (R - 2))``."""
    half = frequencies.shape[0]
    return frequencies * factor ** (-jnp.arange(half, dtype=jnp.float32) / max(half - 1, 1))


def llama3_scaling(
    frequencies: jax.Array,
    /,
    *,
    factor: float = 1.0,
    original_length: int = 8_192,
    low_turns: float = 1.0,
    high_turns: float = 4.0,
) -> jax.Array:
    """Llama 3.1's: between ``low_turns`` and ``high_turns`` within ``original_length`` from slowed down to kept."""
    turns = frequencies * (original_length / (2 * math.pi))
    return _blend(frequencies, factor, kept=(turns - low_turns) / (high_turns - low_turns))


def yarn_scaling(
    frequencies: jax.Array,
    /,
    *,
    factor: float = 1.0,
    original_length: int = 4_096,
    theta: float = 10_000.0,
    low_turns: float = 1.0,
    high_turns: float = 32.0,
) -> jax.Array:
    """YaRN's (Peng et al. 2023, arXiv:2309.00071): the same idea, linear in the pair's number instead of in its turns.

    The pairs between which it blends are rounded outwards to whole ones, as in the published code. ``theta`` is that of the
    encoding. The paper also raises the temperature: give ``rotary`` a ``magnitude`` of ``yarn_magnitude(factor)``.
    """
    half = frequencies.shape[0]

    def pair_that_turns(turns: float) -> float:
        return half * math.log(original_length / (2 * math.pi * turns)) / math.log(theta)

    first = max(math.floor(pair_that_turns(high_turns)), 0)
    last = min(math.ceil(pair_that_turns(low_turns)), 2 * half - 1)
    slowed = (jnp.arange(half, dtype=jnp.float32) - first) / max(last - first, 1e-3)
    return _blend(frequencies, factor, kept=1.0 - slowed)


def yarn_magnitude(factor: float, /) -> float:
    """``0.1 · ln(factor) + 1``, the magnitude that YaRN's paper fits."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0


def _blend(frequencies: jax.Array, factor: float, *, kept: jax.Array) -> jax.Array:
    kept = jnp.clip(kept, 0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / factor)
