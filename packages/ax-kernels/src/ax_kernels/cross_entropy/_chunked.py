"""Cross-entropy a slice of the vocabulary at a time: it never holds more than ``M × chunk_size`` logits.

The forward pass keeps a running maximum and sum over the slices, as attention's online softmax does over keys, and
saves ``log_z``. The backward pass computes each slice's logits again (one matmul in four), turns them into
probabilities by ``log_z``, and finishes that slice's weight gradient before the next.

Why slices of the vocabulary and not of the rows: the weight's gradient ``[V, D]`` is then written once, where row chunks
read and write all of it for every chunk; the accumulator that remains, the hidden gradient ``[M, D]``, is small. And
rows stay whole, so a batch split over devices stays split.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from ._base import check

Carry = TypeVar("Carry")


class _Spec(NamedTuple):
    """What is static about a call."""

    chunk_size: int
    logit_cap: float | None


def chunked(
    hidden: jax.Array,
    weight: jax.Array,
    targets: jax.Array,
    /,
    *,
    logit_cap: float | None = None,
    chunk_size: int = 2048,
) -> tuple[jax.Array, jax.Array]:
    """What `base` gives, holding the logits of ``chunk_size`` vocabulary entries at a time; any ``M``, any ``V``.

    Reverse-mode differentiable once, in hidden and weight, through both results; no forward mode.

    Raises:
        ValueError: shapes that don't fit, or an option out of its range.
    """
    check(hidden, weight, targets, logit_cap=logit_cap)
    if chunk_size < 1:
        raise ValueError(f"cross_entropy.chunked wants a chunk_size of at least 1; got {chunk_size}")
    return _cross_entropy(_Spec(min(chunk_size, weight.shape[0]), logit_cap), hidden, weight, targets)


def _over_chunks(
    spec: _Spec, weight: jax.Array, step: Callable[[jax.Array | int, jax.Array, Carry], Carry], carry: Carry
) -> Carry:
    """``carry`` after ``step(start, weight[start : start + chunk], carry)`` for every chunk; the last may be shorter."""
    size, vocab_size = spec.chunk_size, weight.shape[0]
    num_whole = vocab_size // size

    def whole(index: jax.Array, carry: Carry) -> Carry:
        return step(index * size, lax.dynamic_slice_in_dim(weight, index * size, size), carry)

    carry = lax.fori_loop(0, num_whole, whole, carry)
    return step(num_whole * size, weight[num_whole * size :], carry) if vocab_size % size else carry


def _logits(spec: _Spec, hidden: jax.Array, weight: jax.Array) -> jax.Array:
    logits = jnp.einsum("md,vd->mv", hidden, weight, preferred_element_type=jnp.float32)
    return logits if spec.logit_cap is None else spec.logit_cap * jnp.tanh(logits / spec.logit_cap)


def _is_target(start: jax.Array | int, weight: jax.Array, targets: jax.Array) -> jax.Array:
    """``[M, chunk]``: whether a row's target is that entry of the vocabulary. A mask and no gather, which devices would share."""
    return jnp.arange(weight.shape[0])[None, :] == (targets - start)[:, None]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _cross_entropy(
    spec: _Spec, hidden: jax.Array, weight: jax.Array, targets: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def chunk(
        start: jax.Array | int, weight: jax.Array, running: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        maximum, total, target_logit = running
        logits = _logits(spec, hidden, weight)
        new_maximum = jnp.maximum(maximum, logits.max(axis=-1))
        total = total * jnp.exp(maximum - new_maximum) + jnp.exp(logits - new_maximum[:, None]).sum(axis=-1)
        return (
            new_maximum,
            total,
            target_logit + jnp.where(_is_target(start, weight, targets), logits, 0.0).sum(axis=-1),
        )

    rows = hidden.shape[:1]
    empty = (jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros(rows))
    maximum, total, target_logit = _over_chunks(spec, weight, chunk, empty)
    log_z = maximum + jnp.log(total)
    return log_z - target_logit, log_z


_Residuals = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def _cross_entropy_forward(
    spec: _Spec, hidden: jax.Array, weight: jax.Array, targets: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], _Residuals]:
    loss, log_z = _cross_entropy(spec, hidden, weight, targets)
    return (loss, log_z), (hidden, weight, targets, log_z)


def _cross_entropy_backward(
    spec: _Spec, residuals: _Residuals, gradients: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, None]:
    """``dlogits = (d_loss + d_log_z) · softmax(logits) − d_loss · onehot(target)``, and from it both products."""
    hidden, weight, targets, log_z = residuals
    d_loss, d_log_z = gradients
    d_total = d_loss + d_log_z

    def chunk(
        start: jax.Array | int, weight: jax.Array, sums: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        d_hidden, d_weight = sums
        logits = _logits(spec, hidden, weight)
        is_target = _is_target(start, weight, targets)
        d_logits = jnp.exp(logits - log_z[:, None]) * d_total[:, None] - jnp.where(is_target, d_loss[:, None], 0.0)
        if spec.logit_cap is not None:
            d_logits *= 1.0 - jnp.square(logits / spec.logit_cap)
        d_logits = d_logits.astype(hidden.dtype)
        d_hidden += jnp.einsum("mv,vd->md", d_logits, weight, preferred_element_type=jnp.float32)
        d_chunk = jnp.einsum("mv,md->vd", d_logits, hidden, preferred_element_type=jnp.float32)
        return d_hidden, lax.dynamic_update_slice_in_dim(d_weight, d_chunk.astype(d_weight.dtype), start, axis=0)

    empty = (jnp.zeros(hidden.shape, jnp.float32), jnp.zeros_like(weight))
    d_hidden, d_weight = _over_chunks(spec, weight, chunk, empty)
    return d_hidden.astype(hidden.dtype), d_weight, None


_cross_entropy.defvjp(_cross_entropy_forward, _cross_entropy_backward)
