"""Position encodings that turn queries and keys (or leave them)."""

# ruff: noqa: ARG001  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import jax
import jax.numpy as jnp


def rotary(x: jax.Array, /, *, positions: jax.Array | None, theta: float = 10_000.0) -> jax.Array:
    """Rotary position encoding (Su et al. 2021, arXiv:2104.09864), fits ``PositionEncoding``.

    The pair of elements ``(i, i + H/2)`` turns by ``position · theta ** (-2i / H)``: the layout of Llama's published
    weights in Hugging Face's form. Angles and products are computed in float32.

    Raises:
        ValueError: The head dim is odd.
    """
    _, length, _, head_dim = x.shape
    if head_dim % 2:
        raise ValueError(f"rotary turns pairs of elements, so the head dim is even; got {head_dim}")
    half = head_dim // 2
    frequencies = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    steps = jnp.arange(length)[None] if positions is None else positions
    angles_BTH = steps[:, :, None].astype(jnp.float32) * frequencies[None, None, :]
    cos, sin = jnp.cos(angles_BTH)[:, :, None, :], jnp.sin(angles_BTH)[:, :, None, :]
    first, second = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def no_positions(x: jax.Array, /, *, positions: jax.Array | None) -> jax.Array:
    """``x`` itself (NoPE): positions are known by the causal mask only. Fits ``PositionEncoding``."""
    return x
