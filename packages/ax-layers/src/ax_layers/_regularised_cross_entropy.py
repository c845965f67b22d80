"""Cross-entropy with two regularisers, each in terms of what any ``CrossEntropyFn`` gives: no further look at the logits.

The z-loss keeps ``log_z``, to which cross-entropy is blind, near zero (Chowdhery et al. 2022, arXiv:2204.02311, §5). Label
smoothing (Szegedy et al. 2016, arXiv:1512.00567, §7) takes a part of each target for the whole vocabulary, evenly; that needs
the mean of all logits, which is the product with the mean of the weight's rows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ._cross_entropy import cross_entropy
from .protocols import CrossEntropyFn


def regularised_cross_entropy(
    hidden: jax.Array,
    weight: jax.Array,
    targets: jax.Array,
    /,
    *,
    logit_cap: float | None = None,
    base: CrossEntropyFn = cross_entropy,
    z_loss: float = 0.0,
    label_smoothing: float = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """``base``'s loss and the regularisers; fits ``CrossEntropyFn``.

    Args:
        hidden: See ``CrossEntropyFn``, as ``weight``, ``targets`` and ``logit_cap``.
        weight: The head's.
        targets: The right tokens.
        logit_cap: The cap of the logits.
        base: Any ``CrossEntropyFn``; one that doesn't hold all logits at once still doesn't.
        z_loss: How much of ``log_z²`` is added; 1e-4 is usual.
        label_smoothing: The part of each target that is spread over the vocabulary.

    Raises:
        ValueError: Labels are to be smoothed and logits capped, the mean of which has no such form.
    """
    loss_M, log_z_M = base(hidden, weight, targets, logit_cap=logit_cap)
    smoothing_M = jnp.zeros_like(loss_M)
    if label_smoothing:
        if logit_cap is not None:
            raise ValueError(
                "label_smoothing needs the mean of all logits, which isn't to be had where they are capped"
            )
        mean_D = jnp.mean(weight.astype(jnp.float32), axis=0)
        target_logit_M, mean_logit_M = log_z_M - loss_M, hidden.astype(jnp.float32) @ mean_D
        smoothing_M = label_smoothing * (target_logit_M - mean_logit_M)
    return loss_M + smoothing_M + z_loss * log_z_M**2, log_z_M
