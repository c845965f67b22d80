"""Numbers on their way from the devices to the sinks, without the devices waiting for them.

A step's metrics are taken while the devices still compute them, and fetched only when the next step's are taken: by then
the devices have work again. ``flush`` waits for the last ones, where the loop stands still anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import jax
import numpy as np

from ._speed import Speedometer
from .protocols import Metrics, MetricSink

Values: TypeAlias = Mapping[str, float]
Derive: TypeAlias = Mapping[str, Callable[[Values], float]]
"""Further values by name, each computed from the others of its group: bits per byte from the loss, say."""


class NonFiniteError(FloatingPointError):
    """A loss or a gradient is not a number any more."""


class Logbook:
    """Writes training's metrics, and whatever else it is given, to all sinks."""

    def __init__(self, sinks: Sequence[MetricSink], *, derive: Derive, speedometer: Speedometer) -> None:
        self._sinks = sinks
        self._derive = derive
        self._speedometer = speedometer
        self._pending: tuple[int, Metrics] | None = None
        self.latest: dict[str, Values] = {}
        """The newest values of each group."""

    def rewind(self, step: int) -> None:
        """Forget what an earlier process wrote for steps after ``step``."""
        for sink in self._sinks:
            sink.rewind(step)

    def record(self, step: int, metrics: Metrics) -> None:
        """Take the metrics of ``step``, which has been dispatched; write those of the step before."""
        for leaf in jax.tree.leaves(metrics):
            leaf.copy_to_host_async()
        self.flush()
        self._pending = (step, metrics)

    def flush(self) -> None:
        """Write what has been taken; waits for the devices."""
        if self._pending is None:
            return
        (step, metrics), self._pending = self._pending, None
        fetched = fetch(metrics)
        speed = self._speedometer.lap()
        means = {name: mean for name, (mean, _) in fetched.items()}
        self.report(step, "train", {**means, "num_targets": fetched["loss"][1]})
        self.write(step, "speed", speed)

    def report(self, step: int, group: str, values: Values) -> None:
        """Write the model's metrics under ``group``, and what derives from them.

        Raises:
            NonFiniteError: The loss or the gradients' norm is infinite or not a number. Nothing is written.
        """
        for name in ("loss", "grad_norm"):
            if not math.isfinite(values.get(name, 0.0)):
                raise NonFiniteError(
                    f"{group}: {name} is {values[name]} at step {step}. Nothing of this step was saved, the last "
                    "checkpoint is intact. Lower the learning rate, clip the gradients, or look for a bad batch"
                )
        self.write(step, group, {**values, **{name: function(values) for name, function in self._derive.items()}})

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
