"""Initializers, to be named in configs: ``partial_for(initializers.normal, std=0.02)``.

All fit ``protocols.Initializer``.
"""

# ruff: noqa: ARG001  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

# A standard normal cut at ±2 has this standard deviation; dividing by it restores 1.
_TRUNCATED_STD = 0.87962566103423978


def zeros(key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike, /, *, fan_in: int) -> jax.Array:
    """All zero."""
    return jnp.zeros(shape, dtype)


def ones(key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike, /, *, fan_in: int) -> jax.Array:
    """All one."""
    return jnp.ones(shape, dtype)


def constant(
    key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike, /, *, fan_in: int, value: float = 0.0
) -> jax.Array:
    """All ``value``."""
    return jnp.full(shape, value, dtype)


def normal(
    key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike, /, *, fan_in: int, std: float = 0.02
) -> jax.Array:
    """Normal with standard deviation ``std``."""
    return _scaled(jax.random.normal(key, shape, jnp.float32), std, dtype)


def truncated_normal(
    key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike, /, *, fan_in: int, std: float = 0.02
) -> jax.Array:
    """Normal cut at two standard deviations, scaled so that ``std`` is what it has after the cut."""
    draw = jax.random.truncated_normal(key, -2.0, 2.0, shape, jnp.float32)
    return _scaled(draw, std / _TRUNCATED_STD, dtype)


def fan_in_truncated_normal(
    key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike, /, *, fan_in: int, scale: float = 1.0
) -> jax.Array:
    """Truncated normal of standard deviation ``scale / sqrt(fan_in)``: outputs are as large as inputs (LeCun 1998)."""
    return truncated_normal(key, shape, dtype, fan_in=fan_in, std=scale / math.sqrt(max(fan_in, 1)))


def log_uniform(
    key: jax.Array,
    shape: tuple[int, ...],
    dtype: jax.typing.DTypeLike,
    /,
    *,
    fan_in: int,
    low: float = 1.0,
    high: float = 16.0,
) -> jax.Array:
    """The logarithm of what is uniform between ``low`` and ``high``."""
    return jnp.log(jax.random.uniform(key, shape, jnp.float32, low, high)).astype(dtype)


def inverse_softplus_of_log_uniform(
    key: jax.Array,
    shape: tuple[int, ...],
    dtype: jax.typing.DTypeLike,
    /,
    *,
    fan_in: int,
    low: float = 1e-3,
    high: float = 0.1,
) -> jax.Array:
    """What ``softplus`` takes to between ``low`` and ``high``, where it is uniform in its logarithm."""
    drawn = jnp.exp(jax.random.uniform(key, shape, jnp.float32, math.log(low), math.log(high)))
    return (drawn + jnp.log(-jnp.expm1(-drawn))).astype(dtype)


def _scaled(draw: jax.Array, scale: float, dtype: jax.typing.DTypeLike) -> jax.Array:
    scaled: jax.Array = draw * jnp.float32(scale)
    return scaled.astype(dtype)
