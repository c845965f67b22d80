"""The selective state space of Mamba-2 as a pure function: the state-space dual (Dao and Gu 2024, arXiv:2405.21060, §6).

It is attention without a softmax, with a decay: head ``n`` has a state ``[S, H]`` that follows

    state_t = exp(log_decay_t) · state_{t-1} + key_tᵀ value_t        output_t = query_t · state_t

so within a chunk of rows it is masked attention, and between chunks a state is handed on. (In the paper's letters query is
C, key is B, value is Δ·x, and log_decay Δ·A.) Shape suffixes: B batch, L and M rows of a chunk, G groups of heads that share
queries and keys, R heads in a group, H head dim, S state dim.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ._chunked_recurrence import Decays, scan_chunks
from ._wide_einsum import wide_einsum


def ssd(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    log_decay: jax.Array,
    /,
    *,
    state: jax.Array | None = None,
    segments: jax.Array | None = None,
    chunk_size: int = 128,
) -> tuple[jax.Array, jax.Array]:
    """Fits ``StateSpaceFn``. Multiplies in the inputs' type, and sums, decays and keeps the state in float32."""
    num_batch, length, num_heads, head_dim = value.shape
    num_groups, state_dim = key.shape[2:]
    grouped = (num_groups, num_heads // num_groups)
    dtype = value.dtype

    def step(
        state_BGRSH: jax.Array, inputs: tuple[jax.Array, jax.Array, jax.Array], decays: Decays
    ) -> tuple[jax.Array, jax.Array]:
        query_BLGS, key_BMGS, value_BMGRH = inputs
        between, from_start, to_end, whole = (x.reshape(num_batch, *grouped, *x.shape[2:]) for x in decays)
        scores_BGLM = wide_einsum("blgs,bmgs->bglm", query_BLGS, key_BMGS)
        weights_BGRLM = (scores_BGLM[:, :, None] * between).astype(dtype)
        within = wide_einsum("bgrlm,bmgrh->blgrh", weights_BGRLM, value_BMGRH)
        before = wide_einsum("blgs,bgrsh->blgrh", query_BLGS, state_BGRSH.astype(dtype))
        output = within + before * _rows_first(from_start)
        kept_BMGRH = value_BMGRH * _rows_first(to_end).astype(dtype)
        added = wide_einsum("bmgs,bmgrh->bgrsh", key_BMGS, kept_BMGRH)
        return state_BGRSH * whole[..., None, None] + added, output.astype(dtype)

    if state is None:
        state = jnp.zeros((num_batch, num_heads, state_dim, head_dim), jnp.float32)
    values = value.reshape(num_batch, length, *grouped, head_dim)
    output, after = scan_chunks(
        step,
        state.reshape(num_batch, *grouped, state_dim, head_dim),
        (query, key, values),
        log_decay,
        segments,
        chunk_size=chunk_size,
    )
    return output.reshape(value.shape), after.reshape(state.shape)


def _rows_first(x_BGRL: jax.Array) -> jax.Array:
    return jnp.moveaxis(x_BGRL, -1, 1)[..., None]
