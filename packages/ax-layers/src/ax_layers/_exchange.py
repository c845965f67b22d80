"""Blocks of rows from every device of a group to every other, in two ways that fit ``Exchange`` and give the same."""

# ruff: noqa: ARG001  # a signature that fits a protocol takes what it may not need

from __future__ import annotations

import jax
import jax.numpy as jnp


def padded_exchange(
    rows: jax.Array, num_sent: jax.Array, num_received: jax.Array, /, *, axis_name: tuple[str, ...]
) -> jax.Array:
    """Fits ``Exchange``: whole blocks are sent, whatever they hold. Every backend can do it."""
    received: jax.Array = jax.lax.all_to_all(rows, axis_name, split_axis=0, concat_axis=0, tiled=True)
    return received


def ragged_exchange(
    rows: jax.Array, num_sent: jax.Array, num_received: jax.Array, /, *, axis_name: tuple[str, ...]
) -> jax.Array:
    """Fits ``Exchange``: only the rows that count are sent, by ``jax.lax.ragged_all_to_all``. XLA has it for TPUs and GPUs; on
    CPUs it is refused when the program is compiled.
    """
    num_devices, num_rows, *rest = rows.shape
    blocks = jnp.arange(num_devices, dtype=jnp.int32) * num_rows
    # Where a block begins at its receiver is up to the sender to say: it is the sender's own number there, as here it is theirs.
    here = jnp.full_like(blocks, jax.lax.axis_index(axis_name) * num_rows)
    flat = rows.reshape(num_devices * num_rows, *rest)
    received: jax.Array = jax.lax.ragged_all_to_all(
        flat, jnp.zeros_like(flat), blocks, num_sent, here, num_received, axis_name=axis_name
    )
    return received.reshape(rows.shape)
