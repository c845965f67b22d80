"""Which numbers stand in which chart: what belongs together is drawn together, runs over each other.

What is known by name comes first, in the order in which one looks at it. All else that was written gets a chart of its own,
group by group: whatever a model, a guard or an evaluator reports is in the report without a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ._history import Curve, History
from ._thinning import thinned

_MOST_NUMBERS = 240_000
"""In all curves together; a number takes about ten characters, half of them where a curve isn't thinned."""
_MOST_POINTS = 1_000
"""Of a curve: about as many as there are pixels."""
_DIGITS = 6

_NOT_DRAWN = {("train", "num_targets"), ("speed", "compile_seconds"), ("speed", "compile_cached"), ("speed", "start")}
"""Told in tables."""

OWN_GROUPS = ("train", "speed", "goodput", "events", "details")
"""The groups that a trainer writes itself; all others are evaluators'."""


@dataclass(frozen=True)
class Line:
    """One curve in a chart."""

    run: int
    label: str
    curve: Curve
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """Curves over the same steps and in the same unit."""

    section: str
    title: str
    lines: Sequence[Line]
    unit: str = ""
    """How its values are written: "", "%", "s" or "count"."""
    note: str = ""
    settles: bool = False
    """Whether it falls from heights that would flatten the rest."""
    noisy: bool = True
    """Whether smoothing shows what it is about."""


def charts(runs: Sequence[History]) -> list[Chart]:
    """All charts of these runs, the most important first."""
    known = [
        Chart("", "Loss", _losses(runs, "loss"), settles=True, note="— training, - - evaluations"),
        Chart("", "Bits per byte", _losses(runs, "bits_per_byte"), settles=True),
        Chart(
            "", "Learning rate", _lines(runs, "train", lambda name: name.split("/")[0] == "learning_rate"), noisy=False
        ),
        Chart("", "Gradient norm", _lines(runs, "train", "grad_norm"), settles=True),
        Chart("", "Tokens per second", _lines(runs, "speed", "tokens_per_second"), unit="count"),
        Chart(
            "",
            "Model FLOPs utilisation",
            _lines(runs, "speed", "mfu"),
            unit="%",
            note="6 FLOPs for each weight of a matmul that a token meets, attention in full, nothing that is computed again; of what "
            "all devices could do at their peak",
        ),
        Chart("", "Seconds per step", _lines(runs, "speed", "step_seconds"), unit="s", settles=True),
        Chart(
            "",
            "Goodput",
            _lines(runs, "goodput", "share"),
            unit="%",
            noisy=False,
            note="share of the time that went to steps",
        ),
    ]
    shown = {id(line.curve) for chart in known for line in chart.lines}
    found = [chart for chart in known if chart.lines]
    for group, name in _all_names(runs):
        lines = [
            line for line in _lines(runs, group, name) if id(line.curve) not in shown and len(line.curve.steps) > 1
        ]
        if lines and group not in ("goodput", "events") and (group, name) not in _NOT_DRAWN:
            found.append(Chart(group, name, lines))
    return found


def to_json(chart: Chart, *, num_curves: int) -> Mapping[str, object]:
    """What the page draws, ``num_curves`` being those of all charts."""
    most = max(min(_MOST_POINTS, _MOST_NUMBERS // (4 * max(num_curves, 1))), 16)
    lines = []
    for line in chart.lines:
        few = thinned(line.curve, most=most)
        entry = {"run": line.run, "label": line.label, "dashed": line.dashed, "per": few.steps_per_point}
        entry |= {"x": few.steps.tolist(), "y": rounded(few.mean)}
        if few.steps_per_point > 1:
            entry |= {"low": rounded(few.least), "high": rounded(few.greatest)}
        lines.append(entry)
    return {
        "section": chart.section,
        "title": chart.title,
        "unit": chart.unit,
        "note": chart.note,
        "settles": chart.settles,
        "noisy": chart.noisy,
        "lines": lines,
    }


def rounded(values: np.ndarray) -> list[float | None]:
    """Numbers as JSON has them: of six digits, null where there is none."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]


def _losses(runs: Sequence[History], name: str) -> list[Line]:
    """Of training and of every evaluator."""
    lines = _lines(runs, "train", name)
    for index, run in enumerate(runs):
        groups = [group for group in run.curves if group not in OWN_GROUPS and name in run.curves[group]]
        lines += [Line(index, group, run.curves[group][name], dashed=True) for group in groups]
    return lines


def _lines(runs: Sequence[History], group: str, name: str | Callable[[str], bool]) -> list[Line]:
    matches = (lambda key: key == name) if isinstance(name, str) else name
    return [
        Line(index, "" if isinstance(name, str) else key.partition("/")[2], curve)
        for index, run in enumerate(runs)
        for key, curve in run.curves.get(group, {}).items()
        if matches(key)
    ]


def _all_names(runs: Sequence[History]) -> Iterator[tuple[str, str]]:
    """Every group and name once, in the order in which they were first written."""
    seen = {(group, name): None for run in runs for group, curves in run.curves.items() for name in curves}
    yield from sorted(seen, key=lambda at: OWN_GROUPS.index(at[0]) if at[0] in OWN_GROUPS else len(OWN_GROUPS))
