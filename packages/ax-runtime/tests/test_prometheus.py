"""Gauges, read back by a real scrape and prometheus_client's own parser."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from ax_runtime.prometheus import PrometheusSink
from prometheus_client.parser import text_string_to_metric_families


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[PrometheusSink]:
    (tmp_path / "first").mkdir()
    with closing(PrometheusSink.Config(port=0).build(folder=tmp_path / "first")) as sink:
        yield sink


def _scrape(sink: PrometheusSink) -> dict[tuple[str, str, str], float]:
    with urlopen(f"http://127.0.0.1:{sink.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert {sample.labels["run"] for sample in samples} <= {"first"}
    found = {(s.name, s.labels["group"], s.labels.get("name", "")): s.value for s in samples}
    assert len(found) == len(samples)
    return found


def test_a_scrape_gives_the_newest_values(sink: PrometheusSink) -> None:
    assert _scrape(sink) == {}
    sink.rewind(0)
    sink.write(1, "train", {"loss": 1 / 3, "grad_norm": math.inf})
    sink.write(2, "train", {"loss": 5e-324})
    sink.write(2, "validation", {"loss": 0.1 + 0.2, "moe/load.0": 1.0, "moe_load_0": 2.0})
    assert _scrape(sink) == {
        ("ax_step", "train", ""): 2,
        ("ax_step", "validation", ""): 2,
        ("ax_loss", "train", "loss"): 5e-324,
        ("ax_grad_norm", "train", "grad_norm"): math.inf,
        ("ax_loss", "validation", "loss"): 0.1 + 0.2,
        ("ax_moe_load_0", "validation", "moe/load.0"): 1.0,
        ("ax_moe_load_0", "validation", "moe_load_0"): 2.0,
    }


def test_a_rewind_drops_what_is_of_later_steps(sink: PrometheusSink) -> None:
    sink.write(1, "validation", {"loss": 1.0})
    sink.write(3, "train", {"loss": 3.0})
    sink.rewind(2)
    assert _scrape(sink) == {("ax_step", "validation", ""): 1, ("ax_loss", "validation", "loss"): 1.0}


def test_a_port_that_is_taken_is_told_and_free_again_after_close(sink: PrometheusSink, tmp_path: Path) -> None:
    again = PrometheusSink.Config(port=sink.port)
    with pytest.raises(ValueError, match=f"can't serve metrics at 127.0.0.1:{sink.port}: .*Choose another port"):
        again.build(folder=tmp_path)
    sink.close()
    again.build(folder=tmp_path).close()
