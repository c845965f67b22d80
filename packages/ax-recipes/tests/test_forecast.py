"""The training step ahead of time: lowered for any number of devices, compiled in a process of its own, shown as a table."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from ax_mesh import accelerator_group
from ax_recipes import ExperimentError, effective
from ax_recipes._aot import lower
from ax_recipes._forecast import Forecast, cause, failed, forecast
from ax_recipes.cli._app import app
from ax_recipes.cli._mesh_table import HEAD, as_markdown
from typer.testing import CliRunner

SMALL = (
    "model.layers.num_layers=2",
    "model.dim=32",
    "model.**.hidden_dim=64",
    "model.**.num_heads=4",
    "model.**.num_kv_heads=4",
    "model.**.head_dim=8",
    "input.seq_length=16",
    "input.batch_size=64",
)


def test_any_model_is_lowered_for_any_number_of_chips_and_no_array_is_made() -> None:
    before = len(jax.live_arrays())
    lowered = lower(effective("llama-2-70b", on="trn2-256"), accelerator_group("trn2-256"))
    assert len(jax.live_arrays()) == before
    text = lowered.as_text()
    assert '"fsdp"=256, "tensor"=4' in text
    assert "tensor<80x8192x28672xf32>" in text, "the weights of all layers are among the arguments"


def test_a_small_recipe_is_compiled_and_told_about() -> None:
    found = forecast("tiny", on="cpu-8", overrides=(*SMALL, "trainer.num_microbatches=2"))
    assert found.problem is None
    assert found.mesh == {"data": 1, "fsdp": 8}
    assert found.num_microbatches == 2
    assert found.remat == "all"
    assert found.arguments is not None
    assert found.program_flops is not None
    # Three float32 arrays a parameter, an eighth of them on each device; norms, steps and the batch on top.
    num_params = 257 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64)
    assert 3 * 4 * num_params / 8 < found.arguments < 3 * 4 * num_params / 8 * 1.3
    # Causal attention leaves out what the convention counts, the head is the embedding.
    assert 0.7 * found.model_flops < found.program_flops < 1.3 * found.model_flops
    assert {"all-gather"} < set(found.collectives) <= {"all-gather", "all-reduce", "reduce-scatter"}
    assert found.fits is None, "of a CPU's memory nothing is known"


def test_what_goes_wrong_is_a_forecast_too() -> None:
    found = forecast("tiny", on="cpu-8", overrides=("input.batch_size=12",))
    assert found.problem is not None
    assert "12 can't be split 8 ways" in found.problem
    assert found.fits is None


@pytest.mark.parametrize(
    ("message", "needed", "there"),
    [
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (80.00G) exceeds available HBM (15.75G). HLO module: jit_step.",
            80.0,
            15.75,
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 25.18G of "
            "15.75G hbm. Exceeded hbm capacity by 9.43G.",
            25.18,
            15.75,
        ),
    ],
)
def test_a_program_that_does_not_fit_says_by_how_much(message: str, needed: float, there: float) -> None:
    assert failed(RuntimeError(message)) == {"hbm": needed * 2**30, "hbm_limit": there * 2**30}
    assert failed(RuntimeError("first line\nsecond")) == {"problem": "RuntimeError: first line"}


def test_a_process_that_died_says_why() -> None:
    said = "W1 slow\nterminate called\n  what():  SmallVector unable to grow\n*** stack ***\nRaising signal 6\n\n"
    assert cause(said) == "what():  SmallVector unable to grow"
    assert cause("W1 slow\nKilled\n") == "Killed"
    assert cause("") == "it said nothing"


def test_an_input_that_cannot_tell_its_batches_is_named() -> None:
    class Unread:
        pass

    config = effective("tiny", on="trn2-16")
    object.__setattr__(config, "input", Unread())
    with pytest.raises(
        ExperimentError, match="Unread can't be asked before there is a run; give it the method batch_shapes"
    ):
        lower(config, accelerator_group("trn2-16"))


ROW = Forecast(
    recipe="llama-2-7b",
    on="v5e-256",
    num_devices=256,
    mesh={"data": 1, "fsdp": 256},
    remat="inputs",
    num_microbatches=4,
    model_flops=2.5e17,
    hbm_limit=16 * 2**30,
    hbm=12 * 2**30,
    arguments=2**30,
    temporaries=11 * 2**30,
    host=0,
    program_flops=3e17,
    collectives={"all-gather": 5e9, "all-reduce": 1e9},
    compile_seconds=60.0,
)


def test_rows_for_a_readme() -> None:
    head, rule, line, too_large, broken = as_markdown(
        [ROW, replace(ROW, hbm=17 * 2**30), replace(ROW, hbm=None, problem="crashed")]
    ).splitlines()
    assert head.count("|") == rule.count("|") == len(HEAD) + 1
    wanted = "llama-2-7b | v5e-256 | 256 | fsdp 256 | inputs | 4 | 12.0 | 16.0 | 1.0 | 11.0 | 0.0 | 250.0 | 300.0 | 6.0 | 60.0 | yes"
    assert line == f"| {wanted} |"
    assert too_large.endswith("| no |")
    assert broken.endswith("| failed |")


def test_the_command_writes_rows_as_they_come_and_fails_if_one_does(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    done = CliRunner().invoke(
        app,
        [
            "mesh",
            "table",
            "tiny",
            "--on",
            "trn2-16",
            "--on",
            "cpu-8",
            "--set",
            "input.batch_size=12",
            "--json",
            str(file),
            "--markdown",
        ],
    )
    assert done.exit_code == 1
    first, second = json.loads(file.read_text())
    assert (first["on"], second["on"]) == ("trn2-16", "cpu-8")
    assert first["problem"] is not None
    assert math.isclose(second["model_flops"], first["model_flops"])
    assert done.stdout.splitlines()[-1].endswith("| failed |")
