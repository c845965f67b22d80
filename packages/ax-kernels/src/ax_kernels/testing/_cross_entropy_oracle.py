"""Cross-entropy and its gradient in NumPy float64, written from the definition and sharing no code with any backend."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ._comparison import Float64, float64


class CrossEntropyAnswer(NamedTuple):
    """Both results, and the gradients of ``sum(loss * loss_gradient + log_z * log_z_gradient)``."""

    loss: Float64
    log_z: Float64
    hidden_gradient: Float64
    weight_gradient: Float64


def cross_entropy_oracle(
    hidden: jax.Array,
    weight: jax.Array,
    targets: jax.Array,
    loss_gradient: jax.Array,
    log_z_gradient: jax.Array,
    /,
    *,
    logit_cap: float | None,
) -> CrossEntropyAnswer:
    """What cross-entropy of these arrays is, and what its gradients are."""
    h, w, d_loss, d_log_z = map(float64, (hidden, weight, loss_gradient, log_z_gradient))
    onehot = np.zeros((targets.shape[0], weight.shape[0]))
    onehot[np.arange(targets.shape[0]), np.asarray(targets)] = 1.0
    raw = h @ w.T
    logits = raw if logit_cap is None else logit_cap * np.tanh(raw / logit_cap)
    maximum = logits.max(axis=1, keepdims=True)
    log_z = (maximum + np.log(np.exp(logits - maximum).sum(axis=1, keepdims=True)))[:, 0]
    d_logits = (d_loss + d_log_z)[:, None] * np.exp(logits - log_z[:, None]) - d_loss[:, None] * onehot
    if logit_cap is not None:
        d_logits = d_logits / np.cosh(raw / logit_cap) ** 2
    return CrossEntropyAnswer(log_z - (logits * onehot).sum(axis=1), log_z, d_logits @ w, d_logits.T @ h)
