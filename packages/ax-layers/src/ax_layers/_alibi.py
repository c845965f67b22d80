"""Attention with linear biases (ALiBi; Press et al. 2022, arXiv:2108.12409): the further back a key, the less it weighs."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp


def alibi(query_positions: jax.Array, key_positions: jax.Array, /, *, num_heads: int) -> jax.Array:
    """``-slope · (query's position - key's)``, fits ``AttentionBias``.

    Slopes fall geometrically from head to head, from ``2 ** (-8/n)`` to ``2 ** -8`` for a power of two ``n``; further heads take
    every other of the slopes of ``2n``.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    exponents = [-8 * (i + 1) / power for i in range(power)]
    exponents += [-4 * (2 * i + 1) / power for i in range(num_heads - power)]
    slopes_1N11 = jnp.asarray([2.0**exponent for exponent in exponents], jnp.float32)[None, :, None, None]
    return slopes_1N11 * (key_positions - query_positions).astype(jnp.float32)[:, None]
