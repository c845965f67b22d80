"""The grouped matmul as one batched matmul: groups are cut into blocks of equal size, and each block meets its group's matrix.

``jax.lax.ragged_dot`` is fast where the compiler knows it. Elsewhere (XLA on GPUs and CPUs) it becomes a product over all
groups at once, with as many copies of the rows as there are groups. Here only the last block of each group is padded
(MegaBlocks' layout, Gale et al. 2022, arXiv:2211.15841, with dense blocks): with ``M`` rows in ``E`` groups there are at most
``M / block + E`` blocks, and as many copies of matrices. Rows are moved by gathers alone, in both directions.

Letters: m rows, n blocks, b rows of a block, e groups, d and f the matrices' dims.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ._base import check


class _Layout(NamedTuple):
    """Where rows stand in blocks, and the reverse."""

    groups: jax.Array
    """``[n]``: each block's."""
    rows: jax.Array
    """``[n, b]``: which row stands there."""
    used: jax.Array
    """``[n, b]``: whether one does."""
    places: jax.Array
    """``[m]``: where a row stands in the blocks, one after the other."""
    grouped: jax.Array
    """``[m]``: whether a row is in any group."""


def batched(rows: jax.Array, weights: jax.Array, group_sizes: jax.Array, /, *, block: int = 256) -> jax.Array:
    """What `base` gives, with ``M + E · block`` rows multiplied at most.

    A larger ``block`` copies fewer matrices and pads more rows; half of the mean group is a good one. Differentiable once, in
    reverse mode; gradients are summed up in float32.

    Raises:
        ValueError: shapes or types that don't fit, or a block below 1.
    """
    check(rows, weights, group_sizes)
    if block < 1:
        raise ValueError(f"grouped_matmul.batched wants a block of at least 1; got {block}")
    if not rows.shape[0]:
        return jnp.zeros((0, weights.shape[2]), rows.dtype)
    return _batched(block, rows, weights, group_sizes)


def _layout(block: int, num_rows: int, sizes: jax.Array) -> _Layout:
    num_groups = sizes.shape[0]
    starts = jnp.cumsum(sizes) - sizes
    num_blocks = -(-sizes // block)
    last_blocks = jnp.cumsum(num_blocks)
    first_blocks = last_blocks - num_blocks

    n = jnp.arange(num_rows // block + num_groups, dtype=sizes.dtype)
    groups = jnp.minimum(jnp.searchsorted(last_blocks, n, side="right"), num_groups - 1)
    within = (n - first_blocks[groups])[:, None] * block + jnp.arange(block, dtype=sizes.dtype)[None]
    used = (within < sizes[groups][:, None]) & (n < last_blocks[-1])[:, None]

    m = jnp.arange(num_rows, dtype=sizes.dtype)
    ends = starts + sizes
    group = jnp.minimum(jnp.searchsorted(ends, m, side="right"), num_groups - 1)
    places = first_blocks[group] * block + m - starts[group]
    return _Layout(groups, jnp.where(used, starts[groups][:, None] + within, 0), used, places, m < ends[-1])


def _in_blocks(x: jax.Array, layout: _Layout) -> jax.Array:
    return jnp.where(layout.used[..., None], x[layout.rows], 0)


def _in_rows(x: jax.Array, layout: _Layout) -> jax.Array:
    flat = x.reshape(-1, x.shape[-1])
    return jnp.where(layout.grouped[:, None], flat[jnp.where(layout.grouped, layout.places, 0)], 0)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _batched(block: int, rows: jax.Array, weights: jax.Array, sizes: jax.Array) -> jax.Array:
    layout = _layout(block, rows.shape[0], sizes)
    return _in_rows(jnp.einsum("nbd,ndf->nbf", _in_blocks(rows, layout), weights[layout.groups]), layout)


_Residuals = tuple[jax.Array, jax.Array, jax.Array]


def _forward(block: int, rows: jax.Array, weights: jax.Array, sizes: jax.Array) -> tuple[jax.Array, _Residuals]:
    return _batched(block, rows, weights, sizes), (rows, weights, sizes)


def _backward(block: int, residuals: _Residuals, gradient: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    rows, weights, sizes = residuals
    layout = _layout(block, rows.shape[0], sizes)
    d_out = _in_blocks(gradient, layout)
    d_rows = jnp.einsum("nbf,ndf->nbd", d_out, weights[layout.groups])
    d_blocks = jnp.einsum("nbd,nbf->ndf", _in_blocks(rows, layout), d_out, preferred_element_type=jnp.float32)
    d_weights = jax.ops.segment_sum(d_blocks, layout.groups, weights.shape[0], indices_are_sorted=True)
    return _in_rows(d_rows, layout), d_weights.astype(weights.dtype), None


_batched.defvjp(_forward, _backward)
