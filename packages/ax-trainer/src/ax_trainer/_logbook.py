"""What is known of the run, in numbers, on its way to the sinks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import jax
import numpy as np

from ._bad_steps import NonFiniteError
from .protocols import Metrics, MetricSink, SupportsLastStep

Values: TypeAlias = Mapping[str, float]
Derive: TypeAlias = Mapping[str, Callable[[Values], float]]
"""Further values by name, each computed from the others of its group: bits per byte from the loss, say."""


class Logbook:
    """Writes to all sinks."""

    def __init__(self, sinks: Sequence[MetricSink], *, derive: Derive) -> None:
        self._sinks = sinks
        self._derive = derive
        self._rewinds: list[tuple[int, Values]] = []
        self.latest: dict[str, Values] = {}
        """The newest values of each group."""

    def last_step(self) -> int | None:
        """How far earlier processes came, as the sinks tell (``SupportsLastStep``)."""
        steps = [sink.last_step() for sink in self._sinks if isinstance(sink, SupportsLastStep)]
        return max((step for step in steps if step is not None), default=None)

    def begin(self, step: int) -> None:
        """Training goes on after ``step``, -1 for from nothing: forget what an earlier process wrote for later steps."""
        self._rewinds.clear()
        self._forget_after(step)

    def go_back(self, step: int, event: Values) -> None:
        """Training goes back to ``step`` within this process: forget later steps, but not why one went back.

        That is written for the step that follows: so it is forgotten in its turn, and written anew, if the process is killed
        before the next checkpoint, for then all this is going to happen again.
        """
        self._forget_after(step)
        self._rewinds = [(where, values) for where, values in self._rewinds if where > step] + [(step + 1, event)]
        for where, values in self._rewinds:
            self.write(where, "events", values)

    def _forget_after(self, step: int) -> None:
        for sink in self._sinks:
            sink.rewind(step)

    def report(self, step: int, group: str, values: Values) -> None:
        """Write the model's metrics under ``group``, and what derives from them; an evaluator may have derived it already."""
        derived = {name: function(values) for name, function in self._derive.items() if name not in values}
        self.write(step, group, {**values, **derived})

    def report_evaluation(self, step: int, evaluator: str, values: Values) -> None:
        """``report``, of what an evaluator found.

        Raises:
            NonFiniteError: The loss is infinite or not a number. Nothing is written.
        """
        if not math.isfinite(values["loss"]):
            raise NonFiniteError(
                f"{evaluator}: loss is {values['loss']} at step {step}, though that of training is finite. Nothing of this step "
                "was saved, the last checkpoint is intact. Look for a bad batch in the held-out data"
            )
        self.report(step, evaluator, values)

    def write(self, step: int, group: str, values: Values) -> None:
        """Write ``values`` under ``group`` as they are."""
        self.latest[group] = values
        for sink in self._sinks:
            sink.write(step, group, values)


def fetch(metrics: Metrics) -> dict[str, tuple[float, float]]:
    """The means and weights as numbers; waits for the devices."""
    return {name: (float(mean), float(weight)) for name, (mean, weight) in jax.device_get(dict(metrics)).items()}


class WeightedMeans:
    """Combines the metrics of several batches, each mean by its weight, in float64."""

    def __init__(self) -> None:
        self._sums: dict[str, np.float64] = {}
        self._weights: dict[str, np.float64] = {}

    def add(self, metrics: Metrics) -> None:
        """Count one more batch in; waits for the devices."""
        for name, (mean, weight) in fetch(metrics).items():
            self._weights[name] = self._weights.get(name, np.float64(0)) + weight
            if weight:  # the mean of nothing may be anything
                self._sums[name] = self._sums.get(name, np.float64(0)) + np.float64(mean) * weight

    def result(self) -> dict[str, float]:
        """The means over all that was added; ValueError where there was nothing."""
        empty = [name for name, weight in self._weights.items() if not weight]
        if empty or not self._weights:
            raise ValueError(f"no batch gave any weight to {', '.join(empty) or 'any metric'}; is the data empty?")
        return {name: float(self._sums[name] / weight) for name, weight in self._weights.items()}
