"""The report: what it tells of a run, and one file that holds all of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ax_config import dumps, override
from ax_recipes import ExperimentError, recipe
from ax_recipes.report import History, Sample, read_history, render
from ax_recipes.report._history import Curve
from ax_recipes.report._thinning import thinned
from ax_runtime.agent import JsonlSink, RunFolder


class _Page(HTMLParser):
    """What a browser makes of the scripts, and every address that it would ask for something."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value is not None]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def _read(html: str) -> dict[str, Any]:
    page = _Page()
    page.feed(html)
    assert page.addresses == ["data:,"]
    assert "@import" not in html
    assert not re.search(r"url\((?!data:)", html)
    assert len(page.scripts) == 3
    data: dict[str, Any] = json.loads(page.scripts[0])
    return data


def _run(folder: Path, *, peak: float = 4e-3, scale: float = 1.0) -> Path:
    config = override(recipe("tiny")(num_steps=4), [f"trainer.optimizer.schedule.peak_value={peak}"])
    with RunFolder(folder, config=dumps(config), environment={"accelerator": "v5e-8"}):
        sink = JsonlSink(folder / "metrics.jsonl")
        sink.write(0, "speed", {"start": 1.0})
        sink.write(0, "speed", {"compile_seconds": 2.0})
        for step in (1, 2, 3, 4):
            if step == 3:
                sink.write(2, "speed", {"start": 1.0})
                sink.write(2, "speed", {"compile_seconds": 1.0})
            loss = math.nan if step == 3 else scale * 8 / step
            sink.write(step, "train", {"loss": loss, "num_targets": 100.0, "learning_rate/head": 0.1, "load/0": step})
            sink.write(step, "speed", {"step_seconds": 0.5, "tokens_per_second": 200.0, "mfu": 0.25})
        sink.write(3, "speed", {"compile_seconds": 1.0})  # of another program
        sink.write(2, "validation", {"loss": 4.5})
        sink.write(4, "validation", {"loss": 5.0})
        sink.write(2, "goodput", {"share": 0.1, "seconds": 2.0, "step_seconds": 0.2, "compile_seconds": 1.8})
        sink.write(
            4,
            "goodput",
            {"share": 0.4, "seconds": 5.0, "step_seconds": 2.0, "input_seconds": 0.5, "compile_seconds": 2.5},
        )
        sink.write(3, "events", {"skipped": 1.0})
        sink.write(4, "events", {"rewound_to": 2.0})
        sink.close()
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return _run(tmp_path / "first")


def _charts(data: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {f"{chart['section']}/{chart['title']}".strip("/"): chart["lines"] for chart in data["charts"]}


def test_curves_of_several_runs_lie_over_each_other(run: Path, tmp_path: Path) -> None:
    other = read_history(_run(tmp_path / "second", scale=2.0))
    charts = _charts(_read(render([read_history(run), other])))
    loss = [(line["run"], line["label"], line["dashed"], line["x"], line["y"]) for line in charts["Loss"]]
    assert loss == [
        (0, "", False, [1, 2, 3, 4], [8.0, 4.0, None, 2.0]),
        (1, "", False, [1, 2, 3, 4], [16.0, 8.0, None, 4.0]),
        (0, "validation", True, [2, 4], [4.5, 5.0]),
        (1, "validation", True, [2, 4], [4.5, 5.0]),
    ]
    assert [line["label"] for line in charts["Learning rate"]] == ["head", "head"]
    assert charts["Goodput"][0]["y"] == [0.1, 0.4]
    assert charts["train/load/0"][0]["y"] == [1.0, 2.0, 3.0, 4.0]
    assert not any(title.startswith(("events", "goodput")) for title in charts)


def test_tables_tell_what_happened_where_time_went_and_what_differs(run: Path, tmp_path: Path) -> None:
    other = read_history(_run(tmp_path / "second", peak=1e-3), samples=[Sample("a", "b", 4)])
    data = _read(render([read_history(run), other]))
    summary = {column["title"]: column["cells"] for column in data["summary"]}
    assert summary["step"] == [4, 4]
    assert summary["of"] == [4, 4]
    assert summary["tokens"] == [400.0, 400.0]
    assert summary["validation loss (least)"] == [4.5, 4.5]
    assert summary["starts"] == [1, 1]
    first = data["runs"][0]
    assert first["goodput"] == {"step": 2.0, "compile": 2.5, "input": 0.5}
    assert list(first["goodput"]) == ["step", "compile", "input"]
    assert first["events"] == [[2, "started again"], [3, "skipped"], [4, "rewound_to 2"]]
    assert first["axes"] == {
        "tokens": {"x": [0, 1, 2, 3, 4], "y": [0, 100, 200, 300, 400]},
        "hours": {"x": [0, 1, 2, 3, 4], "y": [0, 0.000138889, 0.000277778, 0.000416667, 0.000555556]},
    }
    assert data["differences"] == [["trainer.optimizer.schedule.peak_value", ["0.004", "0.001"]]]
    assert ["accelerator", ["v5e-8", "v5e-8"]] in data["environment"]
    assert data["runs"][1]["samples"] == [{"prompt": "a", "text": "b", "step": 4}]


def test_configs_of_classes_that_are_no_more_are_compared_as_text(run: Path, tmp_path: Path) -> None:
    second = _run(tmp_path / "second", peak=1e-3)
    file = second / "config.txt"
    file.write_text(file.read_text().replace("ax_input:TextInput", "ax_gone:TextInput"))
    differences = dict(_read(render([read_history(run), read_history(second)]))["differences"])
    assert differences["input"] == ["new ax_input:TextInput.Config", "new ax_gone:TextInput.Config"]
    assert "trainer.optimizer.schedule.peak_value" in differences


def test_text_can_neither_end_a_script_nor_begin_one(run: Path) -> None:
    evil = '</script><script>alert("</script>")</script><!-- \u2028'
    history = replace(read_history(run, name=evil), samples=[Sample(evil, evil, 4)])
    html = render([history])
    data = _read(html)
    assert data["runs"][0]["name"] == evil
    assert data["runs"][0]["samples"] == [{"prompt": evil, "text": evil, "step": 4}]
    assert html.lower().count("<script") == 3


def test_a_run_that_has_only_begun_has_a_report(tmp_path: Path) -> None:
    RunFolder(tmp_path, config=dumps(recipe("tiny")())).close()
    data = _read(render([read_history(tmp_path)]))
    assert data["charts"] == []
    assert {column["title"]: column["cells"] for column in data["summary"]}["step"] == [0]


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=f"{tmp_path} is no run folder"):
        read_history(tmp_path)


def test_a_million_steps_make_less_than_five_megabytes(tmp_path: Path) -> None:
    RunFolder(tmp_path, config=dumps(recipe("tiny")())).close()
    steps = np.arange(1, 1_000_001)
    noise = np.random.default_rng(0)
    curves = {name: Curve(steps, noise.standard_normal(len(steps))) for name in ("loss", "grad_norm", "num_targets")}
    layers = {f"layers/{layer}": curves["loss"] for layer in range(200)}
    long: History = replace(read_history(tmp_path), curves={"train": curves | layers})
    assert len(render([long, long]).encode()) < 5_000_000


@pytest.mark.parametrize(("length", "most"), [(1, 1), (7, 3), (1_000, 1_000), (1_001, 1_000), (12_345, 100)])
def test_a_thinned_curve_keeps_what_stands_out(length: int, most: int) -> None:
    values = np.random.default_rng(length).standard_normal(length)
    values[length // 2] = 100.0
    few = thinned(Curve(np.arange(length) * 2, values), most=most)
    assert len(few.steps) <= most
    assert few.steps[-1] == 2 * (length - 1)
    spans = [values[at : at + few.steps_per_point] for at in range(0, length, few.steps_per_point)]
    np.testing.assert_allclose(few.mean, [span.mean() for span in spans], rtol=1e-12, atol=1e-12)
    assert few.least.tolist() == [span.min() for span in spans]
    assert few.greatest.max() == 100.0


def test_a_thinned_curve_has_gaps_where_nothing_was_finite() -> None:
    values = np.array([1.0, np.nan, np.inf, np.nan, 3.0])
    few = thinned(Curve(np.arange(5), values), most=3)
    np.testing.assert_array_equal(few.mean, [1.0, np.nan, 3.0])
