"""Cross-entropy in plain XLA: what every other backend must equal. It holds all ``M × V`` logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def base(
    hidden: jax.Array, weight: jax.Array, targets: jax.Array, /, *, logit_cap: float | None = None
) -> tuple[jax.Array, jax.Array]:
    """``hidden [M, D] × weight [V, D] × targets [M] int32 → (loss [M], log_z [M])``, both float32.

    ``log_z = logsumexp(logits)`` and ``loss = log_z - logits[target]``, where ``logits = hidden @ weight.T`` are in
    float32 and, with ``logit_cap``, ``logit_cap * tanh(logits / logit_cap)``. Targets lie in ``[0, V)``; the caller
    gives a row it doesn't count any target, and weights its loss by zero.

    Raises:
        ValueError: shapes that don't fit, or a cap that isn't positive.
    """
    check(hidden, weight, targets, logit_cap=logit_cap)
    logits = jnp.einsum("md,vd->mv", hidden, weight, preferred_element_type=jnp.float32)
    if logit_cap is not None:
        logits = logit_cap * jnp.tanh(logits / logit_cap)
    log_z = jax.nn.logsumexp(logits, axis=-1)
    # A masked sum and no gather: its gradient is elementwise, and a vocabulary split over devices stays split.
    is_target = jnp.arange(weight.shape[0])[None, :] == targets[:, None]
    return log_z - jnp.where(is_target, logits, 0.0).sum(axis=-1), log_z


def check(hidden: jax.Array, weight: jax.Array, targets: jax.Array, *, logit_cap: float | None) -> None:
    """Check the arguments that all backends share; raises ValueError."""
    fits = hidden.ndim == weight.ndim == 2 and hidden.shape[1] == weight.shape[1] and targets.shape == hidden.shape[:1]
    if not fits:
        raise ValueError(
            "cross_entropy wants hidden [M, D], weight [V, D], targets [M]; "
            f"got {hidden.shape}, {weight.shape}, {targets.shape}"
        )
    if not jnp.issubdtype(targets.dtype, jnp.integer):
        raise ValueError(f"cross_entropy wants integer targets; got {targets.dtype}")
    if logit_cap is not None and not logit_cap > 0:
        raise ValueError(f"cross_entropy's logit_cap must be positive, or None for no cap; got {logit_cap}")
