"""What the processes of a job do together about its checkpoints: wait for each other, and know the same.

They share the folder. Barriers are those of JAX's coordination service, not of the devices: a background thread may wait at one
while the devices are at work. What is agreed on in the main thread goes over the devices. In a job of one process nothing is
asked of anybody.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp

_BARRIER_MS = 20 * 60 * 1000
"""As long as Orbax waits. Where a process is gone, the coordination service ends the wait sooner."""


_occasions = itertools.count()


def occasion() -> int:
    """A number that wasn't given before; the same in all processes, which ask equally often."""
    return next(_occasions)


def is_first() -> bool:
    """Whether this process does what is done once."""
    return jax.process_index() == 0


def meet(where: str) -> None:
    """Return when all processes have come to this point; none comes to a ``where`` twice."""
    if jax.process_count() == 1:
        return
    from orbax.checkpoint import multihost  # type: ignore[import-untyped]  # Orbax ships no types

    multihost.get_barrier_sync_fn()(key=f"ax-checkpoint-{where}", timeout_ms=_BARRIER_MS)


def of_first(number: int) -> int:
    """What the first process knows; to be asked by all of them."""
    if jax.process_count() == 1:
        return number
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return int(broadcast_one_to_all(jnp.int32(number)))


def is_true_anywhere(found: bool) -> bool:
    """Whether any process has found it; to be asked by all of them."""
    if jax.process_count() == 1:
        return found
    from jax.experimental.multihost_utils import process_allgather

    return bool(process_allgather(jnp.bool_(found)).any())
