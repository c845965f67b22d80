"""The plain cross-entropy: all logits at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ._output_head import logits_of


def cross_entropy(
    hidden: jax.Array, weight: jax.Array, targets: jax.Array, /, *, logit_cap: float | None = None
) -> tuple[jax.Array, jax.Array]:
    """Fits ``CrossEntropyFn``; holds the ``M × V`` logits in float32."""
    logits_MV = cap_logits(logits_of(hidden, weight), logit_cap)
    peak_M1 = jax.lax.stop_gradient(logits_MV).max(axis=-1, keepdims=True)
    log_z = jnp.log(jnp.exp(logits_MV - peak_M1).sum(axis=-1)) + peak_M1[:, 0]
    # A masked sum rather than a gather: its gradient is elementwise and fuses with the softmax's, a gather's is a scatter.
    is_target = jnp.arange(weight.shape[0])[None, :] == targets[:, None]
    return log_z - jnp.where(is_target, logits_MV, 0.0).sum(axis=-1), log_z


def cap_logits(logits: jax.Array, cap: float | None) -> jax.Array:
    """``cap · tanh(logits / cap)``, or ``logits`` if there is no cap."""
    return logits if cap is None else cap * jnp.tanh(logits / cap)
