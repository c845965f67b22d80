"""The conformance kit of ``GroupedMatmul``: against one matmul a group, in numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ax_layers.protocols import GroupedMatmul

# Of 12 rows: all in groups, some in none, empty groups at both ends and within, one group with all, no row in any.
GROUP_SIZES = ((3, 4, 5), (3, 4, 2), (0, 6, 0), (5, 0, 7), (0, 0, 12), (0, 0, 0))


def check_grouped_matmul(fn: GroupedMatmul, /, *, tolerance: float = 1e-5) -> None:
    """Put ``fn`` through the contract: values, types and gradients, for groups of all kinds."""
    rng = np.random.default_rng(0)
    rows, weights, cotangent = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((12, 8), (3, 8, 16), (12, 16))
    )
    call = jax.jit(fn)
    gradients = jax.jit(jax.grad(lambda r, w, sizes: (fn(r, w, sizes) * cotangent).sum(), argnums=(0, 1)))
    for sizes in GROUP_SIZES:
        ends = np.cumsum(sizes)
        wanted = np.zeros((12, 16))
        to_rows, to_weights = np.zeros(rows.shape), np.zeros(weights.shape)
        for e, (end, size) in enumerate(zip(ends, sizes, strict=True)):
            own = slice(end - size, end)
            wanted[own] = rows[own] @ weights[e]
            to_rows[own] = cotangent[own] @ weights[e].T
            to_weights[e] = rows[own].T @ cotangent[own]
        given = jnp.asarray(sizes, jnp.int32)
        got = (call(rows, weights, given), *gradients(rows, weights, given))
        names = ("the result", "the gradient for the rows", "the gradient for the weights")
        for name, array, reference in zip(names, got, (wanted, to_rows, to_weights), strict=True):
            message = f"{name}, for groups of {sizes} of 12 rows"
            np.testing.assert_allclose(array, reference, rtol=tolerance, atol=tolerance, err_msg=message)
        narrow = call(jnp.asarray(rows, jnp.bfloat16), jnp.asarray(weights, jnp.bfloat16), given)
        assert narrow.dtype == jnp.bfloat16, f"of bfloat16 rows and weights came {narrow.dtype}"
        np.testing.assert_allclose(
            narrow.astype(np.float32), wanted, rtol=5e-2, atol=1e-1, err_msg=f"bfloat16, {sizes}"
        )
