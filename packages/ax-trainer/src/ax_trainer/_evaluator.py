"""What to evaluate on. How is the model's matter: its loss, with ``train=False``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .protocols import HostBatch


@dataclass(frozen=True)
class Evaluator:
    """Held-out data, read from its beginning at every evaluation, so that an evaluation depends on the parameters alone."""

    batches: Callable[[], Iterable[HostBatch]]
    """Starts a fresh pass; every pass gives the same batches."""
    max_batches: int | None = None
    """Read no more than so many."""
