"""The gated delta rule as a pure function (Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464).

A head's state ``[S, H]`` is a memory of values under keys. Each row lets it fade, then corrects what it holds under the row's
key towards the row's value, by the fraction ``beta``:

    faded_t = exp(log_decay_t) · state_{t-1}
    state_t = faded_t + beta_t · key_tᵀ (value_t - key_t · faded_t)        output_t = query_t · state_t

Within a chunk the corrections depend on each other, each on those before it: a triangular system, solved at once (§3.3, there
called the WY representation). With the corrections known the rest is as in ``_ssd``. Shape suffixes: B batch, L and M rows
of a chunk, G heads of queries and keys, R heads of values for each of them, H value dim, S key dim.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ._chunked_recurrence import Decays, scan_chunks
from ._wide_einsum import wide_einsum


def delta_rule(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    /,
    *,
    state: jax.Array | None = None,
    segments: jax.Array | None = None,
    chunk_size: int = 64,
) -> tuple[jax.Array, jax.Array]:
    """Fits ``DeltaRuleFn``. Multiplies in the inputs' type; sums, decays, the system and the state are float32."""
    num_batch, length, num_heads, head_dim = value.shape
    num_groups, state_dim = key.shape[2:]
    grouped = (num_groups, num_heads // num_groups)
    dtype = value.dtype

    def step(
        state_BGRSH: jax.Array, inputs: tuple[jax.Array, jax.Array, jax.Array, jax.Array], decays: Decays
    ) -> tuple[jax.Array, jax.Array]:
        query_BLGS, key_BLGS, value_BLGRH, beta_BLGR = inputs
        between, from_start, to_end, whole = (x.reshape(num_batch, *grouped, *x.shape[2:]) for x in decays)
        narrow_state = state_BGRSH.astype(dtype)
        beta_BGRL1 = jnp.moveaxis(beta_BLGR, 1, -1)[..., None]

        recalled_BGRLH = wide_einsum("blgs,bgrsh->bgrlh", key_BLGS, narrow_state) * from_start[..., None]
        wrong_BGRLH = jnp.moveaxis(value_BLGRH, 1, 3).astype(jnp.float32) - recalled_BGRLH
        alike_BGLM = wide_einsum("blgs,bmgs->bglm", key_BLGS, key_BLGS)
        # Of the system only what is below the diagonal is read: the diagonal is 1, what is above it is 0.
        corrections_BGRLH = jax.lax.linalg.triangular_solve(
            beta_BGRL1 * alike_BGLM[:, :, None] * between,
            beta_BGRL1 * wrong_BGRLH,
            left_side=True,
            lower=True,
            unit_diagonal=True,
        )

        scores_BGLM = wide_einsum("blgs,bmgs->bglm", query_BLGS, key_BLGS)
        weights_BGRLM = (scores_BGLM[:, :, None] * between).astype(dtype)
        within = wide_einsum("bgrlm,bgrmh->bgrlh", weights_BGRLM, corrections_BGRLH.astype(dtype))
        before = wide_einsum("blgs,bgrsh->bgrlh", query_BLGS, narrow_state)
        output_BGRLH = within + before * from_start[..., None]
        kept_BGRMH = (corrections_BGRLH * to_end[..., None]).astype(dtype)
        added = wide_einsum("bmgs,bgrmh->bgrsh", key_BLGS, kept_BGRMH)
        return state_BGRSH * whole[..., None, None] + added, jnp.moveaxis(output_BGRLH, 3, 1).astype(dtype)

    if state is None:
        state = jnp.zeros((num_batch, num_heads, state_dim, head_dim), jnp.float32)
    output, after = scan_chunks(
        step,
        state.reshape(num_batch, *grouped, state_dim, head_dim),
        (
            query,
            key,
            value.reshape(num_batch, length, *grouped, head_dim),
            beta.astype(jnp.float32).reshape(num_batch, length, *grouped),
        ),
        log_decay,
        segments,
        chunk_size=chunk_size,
    )
    return output.reshape(value.shape), after.reshape(state.shape)
