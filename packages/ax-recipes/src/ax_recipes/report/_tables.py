"""What a report tells in words and numbers: how runs went, where their time went, what happened, how they differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ax_config import Config, ConfigError, diff, diff_texts, loads

from ._charts import OWN_GROUPS
from ._history import Curve, History

Cell = str | float | None
_WINDOW = 50
"""Steps whose mean stands for where a run has got to."""


@dataclass(frozen=True)
class Column:
    """A column of the summary: how its numbers are written is told by ``kind``: "", "%", "s", "count"."""

    title: str
    kind: str
    cells: Sequence[Cell]


def summary(runs: Sequence[History]) -> list[Column]:
    """A row for each run; columns that no run has anything for are left out."""
    columns = [
        Column("step", "count", [_last_step(run) for run in runs]),
        Column("of", "count", [_number(run.config.get("num_steps")) for run in runs]),
        Column("tokens", "count", [_total(run, "train", "num_targets") for run in runs]),
        Column(f"loss (mean of {_WINDOW})", "", [_recent(run, "train", "loss") for run in runs]),
    ]
    evaluators = dict.fromkeys(g for run in runs for g in run.curves if g not in OWN_GROUPS and "loss" in run.curves[g])
    columns += [Column(f"{group} loss (least)", "", [_least(run, group) for run in runs]) for group in evaluators]
    columns += [
        Column("tokens/s", "count", [_recent(run, "speed", "tokens_per_second") for run in runs]),
        Column("MFU", "%", [_recent(run, "speed", "mfu") for run in runs]),
        Column("s per step", "s", [_recent(run, "speed", "step_seconds") for run in runs]),
        Column("goodput", "%", [_newest(run, "goodput", "share") for run in runs]),
        Column("starts", "count", [len(run.starts) for run in runs]),
    ]
    return [column for column in columns if any(cell is not None for cell in column.cells)]


def goodput(run: History) -> dict[str, float]:
    """Seconds by cause, "step" (productive) first, then the greatest. Empty if the run doesn't tell."""
    newest = {name: float(curve.values[-1]) for name, curve in run.curves.get("goodput", {}).items()}
    seconds = {name.removesuffix("_seconds"): value for name, value in newest.items() if name.endswith("_seconds")}
    spent = sorted(((cause, value) for cause, value in seconds.items() if value > 0), key=lambda pair: -pair[1])
    return dict(sorted(spent, key=lambda pair: pair[0] != "step"))


def events(run: History) -> list[tuple[int, str]]:
    """What happened at which step: starts after the first, and what the trainer noted."""
    noted: dict[int, dict[str, float]] = {}
    for name, curve in run.curves.get("events", {}).items():
        for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
            noted.setdefault(step, {})[name] = value
    found = [(step, _written(values)) for step, values in noted.items()]
    found += [(step, "started again") for step in starting_steps(run)[1:]]
    return sorted(found)


def starting_steps(run: History) -> list[int]:
    """The steps after which a process began to train; of starts that came to nothing there are none."""
    began = run.curves.get("speed", {}).get("start")
    return [] if began is None else [int(step) for step in began.steps]


def config_differences(runs: Sequence[History]) -> list[tuple[str, list[str | None]]]:
    """Each path whose value isn't the same in all runs, with its text in each; None where a run has no such path."""
    paths: dict[str, None] = {}
    first = runs[0]
    for other in runs[1:]:
        before, after = _config(first), _config(other)
        if before is not None and after is not None:
            changes = diff(before, after)
        else:  # written by a version whose classes are no more
            changes = diff_texts(first.config, other.config)
        for change in changes:
            paths |= {change.path_before or change.path: None, change.path: None}
    return [(path, [run.config.get(path) for run in runs]) for path in paths]


def environment(runs: Sequence[History]) -> list[tuple[str, list[str]]]:
    """What each run's last start ran on, fact by fact."""
    flat = [_flat(run.starts[-1]) if run.starts else {} for run in runs]
    names = list(dict.fromkeys(name for facts in flat for name in facts))
    rows = [(name, [facts.get(name, "") for facts in flat]) for name in names]
    return [(name, texts) for name, texts in rows if any(texts)]


_NOT_FACTS = ("argv", "config_changes", "pid", "time")
"""Of a start: told where all starts are listed."""


def _flat(start: Mapping[str, object]) -> dict[str, str]:
    """Fact by fact, what is grouped (variables, package versions) after the rest."""
    facts: dict[str, str] = {}
    grouped: dict[str, str] = {}
    for name, value in start.items():
        if isinstance(value, Mapping):
            grouped |= {str(key): str(item) for key, item in value.items()}
        elif name not in _NOT_FACTS and value is not None:
            facts[name] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return facts | grouped


def _config(run: History) -> Config[object] | None:
    try:
        return loads(run.config_text)
    except (ConfigError, ImportError):
        return None


def _written(values: Mapping[str, float]) -> str:
    return ", ".join(name if value == 1 else f"{name} {value:g}" for name, value in values.items())


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _curve(run: History, group: str, name: str) -> Curve | None:
    return run.curves.get(group, {}).get(name)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _last_step(run: History) -> int:
    return max((int(c.steps[-1]) for curves in run.curves.values() for c in curves.values()), default=0)


def _total(run: History, group: str, name: str) -> float | None:
    curve = _curve(run, group, name)
    return None if curve is None else _finite(float(np.sum(curve.values)))


def _recent(run: History, group: str, name: str) -> float | None:
    curve = _curve(run, group, name)
    return None if curve is None else _finite(float(np.mean(curve.values[-_WINDOW:])))


def _least(run: History, group: str) -> float | None:
    curve = _curve(run, group, "loss")
    return None if curve is None else _finite(float(np.nanmin(curve.values)))


def _newest(run: History, group: str, name: str) -> float | None:
    curve = _curve(run, group, name)
    return None if curve is None else _finite(float(curve.values[-1]))
