"""What to evaluate on, and when. How is the model's matter: its loss, with ``train=False``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic

import jax

from ._average import averaged
from ._logbook import Derive, Values, WeightedMeans
from ._state import TrainState, keys_of
from ._step import eval_step
from .protocols import HostBatch, Model, Params, Partitioner


@dataclass(frozen=True)
class Evaluator:
    """Held-out data, read from its beginning at every evaluation, so that an evaluation depends on the parameters alone."""

    batches: Callable[[], Iterable[HostBatch]]
    """Starts a fresh pass; every pass gives the same batches."""
    max_batches: int | None = None
    """Read no more than so many."""
    every: int | None = None
    """Evaluate at multiples of this step; None means at those of the trainer's ``evaluate_every``. And always at the end."""
    at_start: bool = False
    """Evaluate before the first step, too."""
    averaged: bool = False
    """Evaluate the averaged parameters (see ``averaged``), not those of the last step."""
    derive: Derive = field(default_factory=dict)
    """Values computed from its metrics, in place of those of the same names that the trainer computes."""


class Evaluations(Generic[Params]):
    """Runs evaluators. Their randomness is a key of its own: they leave no trace in the training.

    Raises:
        ValueError: An evaluator has an impossible schedule, or a name that the trainer writes under itself.
    """

    def __init__(
        self,
        evaluators: Mapping[str, Evaluator],
        *,
        model: Model[Params],
        partitioner: Partitioner,
        seed: int,
        every: int | None,
    ) -> None:
        for name, evaluator in evaluators.items():
            if evaluator.every is not None and evaluator.every < 1:
                raise ValueError(f"evaluator {name!r}: every must be at least 1, got {evaluator.every}")
        self._evaluators = dict(evaluators)
        self._partitioner = partitioner
        self._seed = seed
        self._every = every
        self._step = jax.jit(eval_step(model), out_shardings=partitioner.replicated())

    def due(self, step: int, *, last: bool) -> list[str]:
        """The names of those that evaluate after ``step``, which may be the last one of all."""
        if step == 0:
            return [name for name, evaluator in self._evaluators.items() if evaluator.at_start]
        return [
            name
            for name, evaluator in self._evaluators.items()
            if last or is_due(step, evaluator.every if evaluator.every is not None else self._every)
        ]

    def evaluate(self, name: str, state: TrainState[Params]) -> Values:
        """The means of an evaluator's metrics over its batches, by their weights.

        Raises:
            ValueError: There is no data, or nothing is averaged.
        """
        key = jax.random.key_data(keys_of(self._seed).evaluations)
        evaluator = self._evaluators[name]
        params = averaged(state) if evaluator.averaged else state.params
        means, last = WeightedMeans(), None
        for batch in islice(evaluator.batches(), evaluator.max_batches):
            with self._partitioner.activate():
                metrics = self._step(params, key, self._partitioner.put(batch))
            if last is not None:
                means.add(last)  # while the devices are at work on the next
            last = metrics
        if last is None:
            raise ValueError(
                f"evaluator {name!r} gave no batch at step {int(state.step)}; give it data or leave it out"
            )
        means.add(last)
        values = means.result()
        return {**values, **{name: function(values) for name, function in evaluator.derive.items()}}


def is_due(step: int, every: int | None) -> bool:
    """Whether ``step`` is one of ``every`` so many."""
    return every is not None and step % every == 0
