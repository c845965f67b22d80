"""The grouped matmul in plain XLA: what every other backend must equal. It multiplies all rows with every matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def base(rows: jax.Array, weights: jax.Array, group_sizes: jax.Array, /) -> jax.Array:
    """``rows [M, D] × weights [E, D, F] × group_sizes [E] int32 → [M, F]`` in the rows' type, summed up in float32.

    The first ``group_sizes[0]`` rows are multiplied with ``weights[0]``, the next ``group_sizes[1]`` with ``weights[1]``, and so
    on; a group may be empty. Rows after the last group give zeros.

    Raises:
        ValueError: shapes or types that don't fit.
    """
    check(rows, weights, group_sizes)
    ends = jnp.cumsum(group_sizes)

    def one_more(out: jax.Array, group: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        weight, end, size = group
        row = jnp.arange(rows.shape[0])
        own = (row >= end - size) & (row < end)
        product = jnp.einsum("md,df->mf", rows, weight, preferred_element_type=jnp.float32)
        return jnp.where(own[:, None], product, out), None

    zeros = jnp.zeros((rows.shape[0], weights.shape[2]), jnp.float32)
    return jax.lax.scan(one_more, zeros, (weights, ends, group_sizes))[0].astype(rows.dtype)


def check(rows: jax.Array, weights: jax.Array, group_sizes: jax.Array) -> None:
    """Check the arguments that all backends share; raises ValueError."""
    fits = rows.ndim == 2 and weights.ndim == 3 and rows.shape[1] == weights.shape[1]
    if not fits or group_sizes.shape != weights.shape[:1]:
        raise ValueError(
            "grouped_matmul wants rows [M, D], weights [E, D, F], group_sizes [E]; "
            f"got {rows.shape}, {weights.shape}, {group_sizes.shape}"
        )
    if rows.dtype != weights.dtype:
        raise ValueError(f"grouped_matmul wants rows and weights of one type; got {rows.dtype} and {weights.dtype}")
    if not jnp.issubdtype(group_sizes.dtype, jnp.integer):
        raise ValueError(f"grouped_matmul wants integer group_sizes; got {group_sizes.dtype}")
