"""``ax report`` on runs of ``ax train``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from command import Ax
from history import losses


def test_a_report_tells_of_real_runs(ax: Ax, small: Sequence[str]) -> None:
    ax.run(*small, "--run", "one", "--profile", "5:7", "--set", "trainer.details_every=8")
    ax.run(*small, "--run", "one", "--profile", "5:7", "--set", "trainer.details_every=8", "--steps", "44")
    ax.run(*small, "--run", "two", "--set", "trainer.optimizer.schedule.peak_value=1e-3")
    said = ax.run(
        "report", "one", "two", "--out", "both.html", "--samples", "1", "--prompt", "import ", "--tokens", "20"
    )
    assert said.stdout.startswith("both.html")
    (embedded,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', (ax.folder / "both.html").read_text()
    )
    data: dict[str, Any] = json.loads(embedded)
    assert [run["name"] for run in data["runs"]] == ["one", "two"]
    lines = {chart["title"]: chart["lines"] for chart in data["charts"]}
    for index, run in enumerate(("one", "two")):
        written = [values["loss"] for (_, name), values in losses(ax.folder / run).items() if name == "train"]
        assert lines["Loss"][index]["y"] == [float(f"{loss:.6g}") for loss in written]
    assert {"Bits per byte", "Learning rate", "Gradient norm", "Model FLOPs utilisation", "Goodput"} <= set(lines)
    assert [run["events"] for run in data["runs"]] == [[[40, "started again"]], []]
    assert ["trainer.optimizer.schedule.peak_value", ["0.004", "0.001"]] in data["differences"]
    assert dict(data["environment"])["accelerator"] == ["cpu-1", "cpu-1"]
    for run in data["runs"]:
        assert run["goodput"]["step"] > 0
        assert run["samples"][0]["text"]
    assert list((ax.folder / "one" / "profile" / "5").rglob("*.xplane.pb"))
    ax.refuse("report", "one", "one", match="a run is named twice")
    ax.refuse("report", "three", match="three is no run folder")
