"""Optax's cross-entropy as the language model's head and loss."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]  # it ships no py.typed


def optax_cross_entropy(
    hidden: jax.Array, weight: jax.Array, targets: jax.Array, /, *, logit_cap: float | None = None
) -> tuple[jax.Array, jax.Array]:
    """Fits ``CrossEntropyFn`` of ax-layers."""
    logits = jnp.einsum("md,vd->mv", hidden, weight, preferred_element_type=jnp.float32)
    if logit_cap is not None:
        logits = logit_cap * jnp.tanh(logits / logit_cap)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return loss, jax.nn.logsumexp(logits, axis=-1)
