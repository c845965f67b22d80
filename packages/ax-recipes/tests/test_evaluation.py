"""Further held-out data, on schedules of their own."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from ax_config import dumps, override
from ax_input import TextInput
from ax_recipes import Evaluation, ExperimentError, recipe
from ax_runtime.agent import read_jsonl, run_locally

SMALL = (
    *("model.dim=16", "model.layers.num_layers=1", "model.**.hidden_dim=16", "model.**.num_heads=1"),
    *("model.**.num_kv_heads=1", "model.**.head_dim=16", "input.seq_length=16", "input.batch_size=4"),
)


def test_each_has_its_schedule_and_its_own_bytes(tmp_path: Path) -> None:
    folders = {"long": 30, "short": 1}  # and how often five bytes stand in a document, before the token that ends it
    for name, number in folders.items():
        (tmp_path / name).mkdir()
        for index in range(20):
            (tmp_path / name / f"{index}.txt").write_text(f"{index:04} " * number)
    config = override(recipe("tiny")(num_steps=3), [*SMALL, f"input.paths=({str(tmp_path / 'long')!r},)"])
    held_out = TextInput.Config(paths=(str(tmp_path / "short"),), seq_length=16, batch_size=2, holdout_fraction=0.5)
    config.evaluations = {"short": Evaluation.Config(input=held_out, every=2, at_start=True, max_batches=1)}
    run_locally(config.build(), tmp_path / "run", config=dumps(config))
    found = {(r.step, r.name): r.values for r in read_jsonl(tmp_path / "run" / "metrics.jsonl")}
    assert [step for step, name in found if name == "short"] == [0, 2, 3]
    assert [step for step, name in found if name == "validation"] == [3]
    for name, bytes_per_token in (("short", 5 / 6), ("validation", 150 / 151)):
        values = found[3, name]
        assert values["loss"] / math.log(2) / values["bits_per_byte"] == pytest.approx(bytes_per_token, rel=0.01)


def test_the_training_data_has_its_name() -> None:
    config = recipe("tiny")(num_steps=1)
    config.evaluations = {"validation": Evaluation.Config(input=TextInput.Config())}
    with pytest.raises(ExperimentError, match="choose another name"):
        config.build()
