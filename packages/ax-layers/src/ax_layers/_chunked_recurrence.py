"""Linear recurrences over a sequence, a chunk at a time.

A state that decays by a factor at each row, and to which each row adds, can be had row by row, or for a whole chunk of rows
at once with matmuls: rows of a chunk then see each other through the decays between them, and what came before through the
state at the chunk's start. A scan goes from chunk to chunk. What a row adds is the layer's business (``_ssd``,
``_delta_rule``); here are the chunks, the decays, and the segments, at whose borders the state starts afresh.

Within a chunk logarithms of decays are summed from its start, and differences of sums taken, in float32. Shape suffixes: B
batch, T length, N heads, L and M rows of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

Inputs = TypeVar("Inputs")


class Decays(NamedTuple):
    """What remains of something by decay, in float32; 0 where a segment ends in between."""

    between: jax.Array
    """From row m to row l of the chunk, ``[B, N, L, M]``; 1 on the diagonal, 0 above it."""
    from_start: jax.Array
    """Of the state before the chunk at row l, ``[B, N, L]``."""
    to_end: jax.Array
    """From row m to the chunk's last, ``[B, N, M]``."""
    whole: jax.Array
    """Of the state before the chunk at its end, ``[B, N]``."""


def scan_chunks(
    step: Callable[[jax.Array, Inputs, Decays], tuple[jax.Array, jax.Array]],
    state: jax.Array,
    inputs: Inputs,
    log_decay: jax.Array,
    segments: jax.Array | None,
    /,
    *,
    chunk_size: int,
) -> tuple[jax.Array, jax.Array]:
    """The rows' outputs ``[B, T, …]`` and the state after the last row.

    ``step`` maps the state before a chunk, the chunk of ``inputs`` (a pytree of ``[B, T, …]``) and its decays to the state
    after it and the chunk's outputs; rows of zeros have to leave the state as it is. ``log_decay`` is ``[B, T, N]``, at most
    0; ``segments`` ``[B, T]``, the first row's being the one that ``state`` belongs to. Of a chunk only the state before it is
    kept for the backward pass.
    """
    length = log_decay.shape[1]
    size = min(chunk_size, length)
    runs = _runs(segments, log_decay.shape[:2])

    def split(x: jax.Array, padding: str = "constant") -> jax.Array:
        padded = jnp.pad(x, [(0, 0), (0, -length % size), *[(0, 0)] * (x.ndim - 2)], mode=padding)
        return jnp.moveaxis(padded.reshape(x.shape[0], -1, size, *x.shape[2:]), 1, 0)

    def body(
        before: tuple[jax.Array, jax.Array], chunk: tuple[Inputs, jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        (state, run), (inputs, log_decay, runs) = before, chunk
        state, outputs = step(state, inputs, _decays(log_decay, runs, run))
        return (state, runs[:, -1]), outputs

    chunks = (jax.tree.map(split, inputs), split(log_decay.astype(jnp.float32)), split(runs, "edge"))
    (state, _), outputs = jax.lax.scan(jax.checkpoint(body, prevent_cse=False), (state, runs[:, 0]), chunks)
    joined = jnp.moveaxis(outputs, 0, 1)
    return joined.reshape(joined.shape[0], -1, *joined.shape[3:])[:, :length], state


def segment_starts(segments: jax.Array) -> jax.Array:
    """Which rows of ``[B, T]`` begin another segment than the row before; the first row begins none."""
    return jnp.pad(segments[:, 1:] != segments[:, :-1], [(0, 0), (1, 0)])


def _runs(segments: jax.Array | None, shape: tuple[int, ...]) -> jax.Array:
    if segments is None:
        return jnp.zeros(shape, jnp.int32)
    return jnp.cumsum(segment_starts(segments), axis=1, dtype=jnp.int32)


def _decays(log_decay_BLN: jax.Array, runs_BL: jax.Array, run_before_B: jax.Array) -> Decays:
    summed_BNL = jnp.cumsum(log_decay_BLN, axis=1).swapaxes(1, 2)
    rows = jnp.arange(runs_BL.shape[1])
    seen_BLM = (runs_BL[:, :, None] == runs_BL[:, None, :]) & (rows[:, None] >= rows[None, :])[None]
    goes_on_BL = runs_BL == run_before_B[:, None]
    logs_BNLM = jnp.where(seen_BLM[:, None], summed_BNL[..., :, None] - summed_BNL[..., None, :], -jnp.inf)
    from_start_BNL = jnp.exp(jnp.where(goes_on_BL[:, None], summed_BNL, -jnp.inf))
    between_BNLM = jnp.exp(logs_BNLM)
    return Decays(between_BNLM, from_start_BNL, between_BNLM[:, :, -1], from_start_BNL[..., -1])
