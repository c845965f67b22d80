"""Rotary positions (Su et al. 2021, arXiv:2104.09864) and the ways to stretch them to longer texts.

A pair of elements turns by ``position · frequency``; what the ways differ in is what they make of the frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol, TypeVar

import jax
import jax.numpy as jnp
from ax_config import Config, partial_for, setting
from ax_layers import Attention
from ax_layers.protocols import PositionEncoding

ConfigT = TypeVar("ConfigT", bound=Config[object])


class Stretch(Protocol):
    """Makes other frequencies of the usual ones, ``[H / 2]`` from fast to slow."""

    def __call__(self, frequencies: jax.Array, /) -> jax.Array: ...


def unstretched(frequencies: jax.Array, /) -> jax.Array:
    """The usual frequencies."""
    return frequencies


def interpolated(frequencies: jax.Array, /, *, factor: float) -> jax.Array:
    """All positions squeezed into the length trained on (Chen et al. 2023, arXiv:2306.15595)."""
    return frequencies / factor


def ntk_aware(frequencies: jax.Array, /, *, factor: float) -> jax.Array:
    """The slowest squeezed by ``factor``, the fastest not at all: the same as a larger theta."""
    return frequencies * factor ** -jnp.linspace(0.0, 1.0, len(frequencies))


def by_parts(frequencies: jax.Array, /, *, factor: float, length: int, slow: float, fast: float) -> jax.Array:
    """What turns fewer than ``slow`` times within ``length`` is squeezed, what turns more than ``fast`` times is not.

    With 1 and 32 YaRN's (Peng et al. 2023, arXiv:2309.00071), with 1 and 4 Llama 3's.
    """
    turns = frequencies * (length / (2 * math.pi))
    kept = jnp.clip((turns - slow) / (fast - slow), 0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / factor)


def rope(
    x: jax.Array,
    /,
    *,
    positions: jax.Array | None,
    theta: float = 10_000.0,
    fraction: float = 1.0,
    stretch: Stretch = unstretched,
    magnitude: float = 1.0,
    interleaved: bool = False,
) -> jax.Array:
    """Fits ``PositionEncoding``.

    The first ``fraction`` of the head dim turns, in pairs ``(i, i + half)`` or, interleaved, ``(2i, 2i + 1)``, and is
    multiplied by ``magnitude`` (YaRN's temperature, on queries and keys alike).
    """
    turning = 2 * int(x.shape[-1] * fraction / 2)
    frequencies = stretch(theta ** (-jnp.arange(0, turning, 2, dtype=jnp.float32) / turning))
    steps = jnp.arange(x.shape[1])[None] if positions is None else positions
    angles = steps[:, :, None, None].astype(jnp.float32) * frequencies[None, None, None, :]
    cos, sin = magnitude * jnp.cos(angles), magnitude * jnp.sin(angles)
    part = x[..., :turning].astype(jnp.float32)
    if interleaved:
        first, second = part[..., 0::2], part[..., 1::2]
    else:
        first, second = part[..., : turning // 2], part[..., turning // 2 :]
    pair = (first * cos - second * sin, second * cos + first * sin)
    turned = jnp.stack(pair, axis=-1).reshape(part.shape) if interleaved else jnp.concatenate(pair, axis=-1)
    return jnp.concatenate([turned.astype(x.dtype), x[..., turning:]], axis=-1)


VARIANTS: Mapping[str, Config[PositionEncoding]] = {
    "plain": partial_for(rope),
    "theta 500,000": partial_for(rope, theta=500_000.0),
    "interpolated 4x": partial_for(rope, stretch=partial_for(interpolated, factor=4.0)),
    "NTK-aware 4x": partial_for(rope, stretch=partial_for(ntk_aware, factor=4.0)),
    "YaRN 4x": partial_for(
        rope, stretch=partial_for(by_parts, factor=4.0, length=4_096, slow=1.0, fast=32.0), magnitude=1.1386
    ),
    "YaRN 16x": partial_for(
        rope, stretch=partial_for(by_parts, factor=16.0, length=4_096, slow=1.0, fast=32.0), magnitude=1.2773
    ),
    "Llama 3.1": partial_for(
        rope, theta=500_000.0, stretch=partial_for(by_parts, factor=8.0, length=8_192, slow=1.0, fast=4.0)
    ),
    "half": partial_for(rope, fraction=0.5),
    "a quarter": partial_for(rope, fraction=0.25),
    "interleaved": partial_for(rope, interleaved=True),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """Positions are told by a variant of this rope, in every attention."""
    return setting(Attention, position_encoding=VARIANTS[variant])(tree)
