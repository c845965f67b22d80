"""A grouped matmul by masks: every group's matrix with all rows, and what isn't the group's is cut out."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def masked_matmul(rows: jax.Array, weights: jax.Array, group_sizes: jax.Array, /) -> jax.Array:
    """Fits ``GroupedMatmul``."""
    ends_E1 = jnp.cumsum(group_sizes)[:, None]
    row_1M = jnp.arange(rows.shape[0])[None]
    mine_EM = (row_1M < ends_E1) & (row_1M >= ends_E1 - group_sizes[:, None])
    return jnp.where(mine_EM[..., None], jnp.einsum("md,edf->emf", rows, weights), 0).sum(axis=0)
