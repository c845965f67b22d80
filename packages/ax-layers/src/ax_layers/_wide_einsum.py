"""A product of two arrays whose result is float32 even where the arrays are narrower, as logits need it.

JAX's own derivative of such a product multiplies the float32 gradient with the narrow array, which is slow on
accelerators and refused under strict dtype promotion (https://github.com/jax-ml/jax/issues/24047). Here the gradient is
narrowed first, so that the backward products are of the kind that the forward one is.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp


def wide_einsum(subscripts: str, left: jax.Array, right: jax.Array, /) -> jax.Array:
    """``einsum`` of two arrays of one type, summed and returned in float32."""
    if left.dtype == jnp.float32:
        return jnp.einsum(subscripts, left, right)
    return _narrow_inputs(subscripts, left, right)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _narrow_inputs(subscripts: str, left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.einsum(subscripts, left, right, preferred_element_type=jnp.float32)


def _forward(subscripts: str, left: jax.Array, right: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _narrow_inputs(subscripts, left, right), (left, right)


def _backward(
    subscripts: str, residuals: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    _, pull_back = jax.vjp(functools.partial(jnp.einsum, subscripts), *residuals)
    to_left, to_right = pull_back(gradient.astype(residuals[0].dtype))
    return to_left, to_right


_narrow_inputs.defvjp(_forward, _backward)
