"""What a run's folder tells of it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from ax_runtime.agent import iter_jsonl, read_config, read_starts

from ax_recipes._experiment import ExperimentError


@dataclass(frozen=True)
class Curve:
    """The values of one name over steps, as they were written; both ``[N]``."""

    steps: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Sample:
    """Text that a model wrote after a prompt."""

    prompt: str
    text: str
    step: int


@dataclass(frozen=True)
class History:
    """A run, read."""

    name: str
    folder: Path
    curves: Mapping[str, Mapping[str, Curve]]
    """By group ("train", "speed", an evaluator's name) and by the value's name."""
    config: Mapping[str, str]
    """The text of each value of the effective config, by path."""
    config_text: str
    starts: Sequence[Mapping[str, object]]
    """As ``ax_runtime.agent.RunFolder`` recorded them."""
    samples: Sequence[Sample] = field(default=())


def read_history(folder: Path, *, name: str | None = None, samples: Sequence[Sample] = ()) -> History:
    """Read a run's folder, also while the run goes on.

    Raises:
        ExperimentError: It is none.
    """
    if not (folder / "config.txt").is_file():
        raise ExperimentError(
            f"{folder} is no run folder: it has no config.txt; train one with ax train --run {folder}"
        )
    steps: dict[tuple[str, str], array[int]] = {}
    values: dict[tuple[str, str], array[float]] = {}
    metrics = folder / "metrics.jsonl"
    for record in iter_jsonl(metrics) if metrics.exists() else ():
        for key, value in record.values.items():
            at = (record.name, key)
            if at not in steps:
                steps[at], values[at] = array("q"), array("d")
            steps[at].append(record.step)
            values[at].append(value)
    curves: dict[str, dict[str, Curve]] = {}
    for group, key in steps:
        curve = Curve(np.frombuffer(steps[group, key], np.int64), np.frombuffer(values[group, key], np.float64))
        curves.setdefault(group, {})[key] = curve
    return History(
        name=name if name is not None else folder.resolve().name,
        folder=folder,
        curves=curves,
        config=read_config(folder),
        config_text=(folder / "config.txt").read_text(encoding="utf-8"),
        starts=read_starts(folder),
        samples=samples,
    )
