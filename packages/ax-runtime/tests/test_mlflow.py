"""A local store of MLflow, read back by its own client."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from ax_runtime.mlflow import MlflowSink
from mlflow import MlflowClient


def test_a_start_and_a_rewind_are_runs_of_one_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the store that needs no database; production has a server
    store = str(tmp_path / "mlruns")
    folder = tmp_path / "first"
    folder.mkdir()
    lines = ". = new a:B\nnum_steps = 3\nmesh.axes['data'] = 2\n" + "".join(f"many.p{i} = {i}\n" for i in range(150))
    (folder / "config.txt").write_text(lines)
    sink = MlflowSink.Config(experiment="ours", tracking_uri=store).build(folder=folder)
    sink.rewind(0)
    sink.write(1, "train", {"loss": 1 / 3, "grad_norm": math.inf})
    sink.write(2, "train", {"loss": 5e-324})
    sink.rewind(1)
    sink.write(2, "train", {"loss": 0.1 + 0.2})
    sink.close()
    sink.close()

    client = MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("ours")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], filter_string="tags.`ax.run` = 'first'")
    by_start = {run.data.tags["ax.from_step"]: run for run in runs}
    assert set(by_start) == {"0", "1"}
    assert {run.info.status for run in runs} == {"FINISHED"}

    def history(start: str, name: str) -> list[tuple[int, float]]:
        return [(m.step, m.value) for m in client.get_metric_history(by_start[start].info.run_id, name)]

    assert history("0", "train/loss") == [(1, 1 / 3), (2, 5e-324)]
    assert history("0", "train/grad_norm") == [(1, math.inf)]
    assert history("1", "train/loss") == [(2, 0.1 + 0.2)]
    params = by_start["1"].data.params
    assert len(params) == 152
    assert {params["num_steps"], params["mesh.axes__data__"], params["many.p149"]} == {"3", "2", "149"}
