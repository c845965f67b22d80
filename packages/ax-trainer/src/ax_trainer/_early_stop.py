"""The end of a run that gets no better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, final

import ax_config

Memory: TypeAlias = dict[str, float]


@final
class EarlyStop:
    """Watches a metric of an evaluator: when ``patience`` evaluations in a row brought no improvement, training ends."""

    class Config(ax_config.Config["EarlyStop"]):
        """What to watch, and for how long."""

        evaluator: str
        """Its name."""
        metric: str = "loss"
        patience: int = 3
        """Evaluations without improvement after which training ends."""
        min_delta: float = 0.0
        """What differs less from the best value is no improvement."""
        mode: Literal["min", "max"] = "min"
        """Whether less or more is better."""

    def __init__(self, cfg: Config, /) -> None:
        if cfg.patience < 1:
            raise ValueError(f"patience must be at least 1, got {cfg.patience}")
        if cfg.min_delta < 0:
            raise ValueError(f"min_delta must not be negative, got {cfg.min_delta}")
        self.cfg = cfg
        self.memory: Memory = {}
        """The ``best`` value so far and the number of ``misses`` since; goes into checkpoints, and may be assigned."""

    @property
    def is_reached(self) -> bool:
        """Whether patience is at its end."""
        return self.memory.get("misses", 0) >= self.cfg.patience

    def see(self, evaluator: str, values: Mapping[str, float], /) -> None:
        """An evaluator's values, in the order of the steps.

        Raises:
            ValueError: It is the evaluator that is watched, and reports no such metric.
        """
        cfg = self.cfg
        if evaluator != cfg.evaluator:
            return
        if cfg.metric not in values:
            raise ValueError(f"early stop watches {cfg.metric!r} of {evaluator!r}, which reports only {sorted(values)}")
        value, best = values[cfg.metric], self.memory.get("best")
        better = best is None or (value < best - cfg.min_delta if cfg.mode == "min" else value > best + cfg.min_delta)
        if better:
            self.memory = {"best": value, "misses": 0}
        else:
            self.memory = {**self.memory, "misses": self.memory["misses"] + 1}
