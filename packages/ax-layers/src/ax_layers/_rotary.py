"""Position encodings that turn queries and keys (or leave them)."""

# ruff: noqa: ARG001  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import jax
import jax.numpy as jnp

from .protocols import FrequencyScaling


def rotary(
    x: jax.Array,
    /,
    *,
    positions: jax.Array | None,
    theta: float = 10_000.0,
    fraction: float = 1.0,
    scaling: FrequencyScaling | None = None,
    magnitude: float = 1.0,
) -> jax.Array:
    """Rotary position encoding (Su et al. 2021, arXiv:2104.09864), fits ``PositionEncoding``.

    The pair of elements ``(i, i + R/2)`` turns by ``position · theta ** (-2i / R)``: the layout of Llama's published
    weights in Hugging Face's form. ``R`` is the first ``fraction`` of the head dim; what lies beyond stays as it is
    (partial rotary, Black et al. 2022, arXiv:2204.06745). Angles and products are computed in float32.

    Args:
        x: Queries or keys, ``[B, T, N, H]``.
        positions: ``[B, T]``; None means that row ``i`` stands at position ``i``.
        theta: The base: the larger, the slower the slowest pair turns.
        fraction: The part of the head dim that turns.
        scaling: Makes other frequencies of these, for longer texts.
        magnitude: Multiplies what has turned; YaRN's temperature is its square.

    Raises:
        ValueError: The number of elements that turn is odd.
    """
    _, length, _, head_dim = x.shape
    turning = int(head_dim * fraction)
    if turning % 2:
        raise ValueError(f"rotary turns pairs of elements, so the head dim is even; got {turning}")
    half = turning // 2
    frequencies = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    if scaling is not None:
        frequencies = scaling(frequencies)
    steps = jnp.arange(length)[None] if positions is None else positions
    angles_BTR = steps[:, :, None].astype(jnp.float32) * frequencies[None, None, :]
    cos, sin = (magnitude * wave[:, :, None, :] for wave in (jnp.cos(angles_BTR), jnp.sin(angles_BTR)))
    first, second = x[..., :half].astype(jnp.float32), x[..., half:turning].astype(jnp.float32)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
    return turned if turning == head_dim else jnp.concatenate([turned, x[..., turning:]], axis=-1)


def no_positions(x: jax.Array, /, *, positions: jax.Array | None) -> jax.Array:
    """``x`` itself (NoPE): positions are known by the causal mask only. Fits ``PositionEncoding``."""
    return x
