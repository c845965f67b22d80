"""The report as one file that needs nothing else: style, scripts and data stand in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

import numpy as np

from ax_recipes._version import __version__

from ._charts import charts, rounded, to_json
from ._history import Curve, History
from ._tables import config_differences, environment, events, goodput, starting_steps, summary
from ._thinning import thinned

_AXIS_POINTS = 500


def render(runs: Sequence[History], *, title: str | None = None) -> str:
    """The HTML of a report on these runs, of which there is at least one."""
    if not runs:
        raise ValueError("a report needs at least one run")
    page = _text("page", "page.html")
    parts = {
        "TITLE": escape(title or " · ".join(run.name for run in runs)),
        "STYLE": _text("vendor", "uPlot.min.css") + "\n" + _text("page", "page.css"),
        "LICENSE": escape(_text("vendor", "uPlot.LICENSE")),
        "CHARTS": _text("vendor", "uPlot.iife.min.js"),
        "SCRIPT": _text("page", "page.js"),
        "DATA": _embedded(_data(runs)),
    }
    head, *rest = page.split("{{")
    return head + "".join(parts[name] + text for name, _, text in (piece.partition("}}") for piece in rest))


def _text(*path: str) -> str:
    return files(__package__).joinpath(*path).read_text(encoding="utf-8")


def _embedded(data: object) -> str:
    """JSON that may stand in a script element: nothing in it can end that."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _data(runs: Sequence[History]) -> Mapping[str, object]:
    drawn = charts(runs)
    num_curves = sum(len(chart.lines) for chart in drawn)
    return {
        "made": datetime.now(UTC).isoformat(timespec="minutes"),
        "version": __version__,
        "runs": [_run(run) for run in runs],
        "summary": [{"title": c.title, "kind": c.kind, "cells": list(c.cells)} for c in summary(runs)],
        "charts": [to_json(chart, num_curves=num_curves) for chart in drawn],
        "differences": config_differences(runs),
        "environment": environment(runs),
    }


def _run(run: History) -> Mapping[str, object]:
    return {
        "name": run.name,
        "folder": str(run.folder),
        "starts": [
            {
                "time": start.get("time"),
                "host": start.get("host"),
                "argv": start.get("argv"),
                "changes": start.get("config_changes"),
            }
            for start in run.starts
        ],
        "restarts": starting_steps(run)[1:],
        "events": events(run),
        "goodput": goodput(run),
        "axes": {"tokens": _axis(run, "train", "num_targets"), "hours": _axis(run, "speed", "step_seconds", 1 / 3600)},
        "config": run.config_text,
        "samples": [{"prompt": s.prompt, "text": s.text, "step": s.step} for s in run.samples],
    }


def _axis(run: History, group: str, name: str, scale: float = 1.0) -> Mapping[str, object] | None:
    """The sum of ``name`` up to a step, at so many steps that the rest lies on straight lines between them."""
    curve = run.curves.get(group, {}).get(name)
    if curve is None:
        return None
    sums = Curve(curve.steps, np.cumsum(np.nan_to_num(curve.values)) * scale)
    few = thinned(sums, most=_AXIS_POINTS)
    return {"x": [0, *few.steps.tolist()], "y": [0.0, *rounded(few.greatest)]}
