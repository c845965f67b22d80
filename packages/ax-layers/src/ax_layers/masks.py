"""Masks: what a query may see by where it and a key stand. All fit ``protocols.AttentionMask``.

A mask is a function of positions and holds no array: whoever computes attention evaluates it on the rows that it has in hand,
all of them or a block. They are named in configs and compose there; a prefix language model, say, is

    Attention.Config(
        …, causal=False, mask=partial_for(masks.any_of, masks=(partial_for(masks.causal), partial_for(masks.prefix, length=64)))
    )

Attention itself knows the two commonest, ``causal`` and ``window``, which fast kernels understand, and documents
("segments"), which are data. All of these and the mask must agree for a query to see a key.
"""

# ruff: noqa: ARG001  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

from collections.abc import Sequence

import jax

from .protocols import AttentionMask


def causal(query_positions: jax.Array, key_positions: jax.Array, /) -> jax.Array:
    """A query sees itself and what stands before it."""
    return key_positions <= query_positions


def prefix(query_positions: jax.Array, key_positions: jax.Array, /, *, length: int = 0) -> jax.Array:
    """Every query sees the first ``length`` positions (Raffel et al. 2020, arXiv:1910.10683)."""
    return key_positions < length


def sliding(query_positions: jax.Array, key_positions: jax.Array, /, *, window: int = 4_096) -> jax.Array:
    """A query sees what stands less than ``window`` away, on both sides (Beltagy et al. 2020, arXiv:2004.05150)."""
    return abs(query_positions - key_positions) < window


def chunked(query_positions: jax.Array, key_positions: jax.Array, /, *, size: int = 8_192) -> jax.Array:
    """A query sees its own chunk of a text that is cut every ``size`` positions (Llama 4's local layers)."""
    return query_positions // size == key_positions // size


def all_of(
    query_positions: jax.Array, key_positions: jax.Array, /, *, masks: Sequence[AttentionMask] = ()
) -> jax.Array:
    """What all ``masks`` let it see; without any, everything."""
    sees = key_positions == key_positions
    for mask in masks:
        sees = sees & mask(query_positions, key_positions)
    return sees


def any_of(
    query_positions: jax.Array, key_positions: jax.Array, /, *, masks: Sequence[AttentionMask] = ()
) -> jax.Array:
    """What one of ``masks`` lets it see; without any, nothing."""
    sees = key_positions != key_positions
    for mask in masks:
        sees = sees | mask(query_positions, key_positions)
    return sees
