"""optax computes with JAX's standard promotion, also for those who made it strict for their own code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def standard_promotion() -> Iterator[None]:
    """Where optax is traced: it raises a Python float to an int32 power, say, which strict promotion refuses."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
