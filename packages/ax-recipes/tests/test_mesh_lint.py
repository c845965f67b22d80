"""``ax mesh lint``: shipped recipes ask for all that they communicate, and a contradiction is found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SMALL = (
    "vocab_size=264",
    "input.seq_length=32",
    "model.dim=32",
    "model.layers.num_layers=2",
    "model.**.num_heads=4",
    "model.**.num_kv_heads=2",
    "model.**.head_dim=8",
    "model.**.hidden_dim=96",
)


def lint(recipe: str, *sets: str) -> subprocess.CompletedProcess[str]:
    options = [part for each in (*SMALL, *sets) for part in ("--set", each)]
    command = [sys.executable, "-m", "ax_recipes", "mesh", "lint", recipe, "--on", "cpu-8", *options]
    quick = {**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=quick)


@pytest.mark.parametrize("axes", [{"data": 2, "fsdp": 4}, {"data": 2, "fsdp": 2, "tensor": 2}], ids=str)
def test_a_shipped_recipe_asks_for_all_that_it_communicates(axes: dict[str, int]) -> None:
    ended = lint("tiny", f"mesh.axes={axes}")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "all asked for by the mesh and its rules" in ended.stdout
    assert "all-gather" in ended.stdout


def test_rules_that_contradict_each_other_are_found() -> None:
    # One module's activations are split by their features, all others' by the batch.
    ended = lint("tiny", "mesh.axes={'fsdp': 8}", "mesh.overrides={'layers/ffn': (('mlp', 'fsdp'), ('batch', None))}")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "collectives that no rule asked for" in ended.stdout
    assert "ax_layers/_feed_forward.py:" in ended.stdout.replace("\n", "")
