"""The large recipes on the clusters that they are for: they fit, and send what their rules promise and nothing else.

Each case is a minute or two of the accelerator's own compiler. `ax mesh table` shows the same numbers, and a file that it wrote
(``--json``) can be handed over (``--forecasts``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
from ax_recipes._catalogue import effective
from ax_recipes._forecast import Forecast, forecast, planned

CLUSTERS = ("v5e-256", "v5p-512", "v6e-256x4", "tpu7x-128", "h100-64", "h100-256", "b200-64")


def num_params(recipe: str) -> int:
    specs = effective(recipe, on="cpu-1").build().model.specs()
    return sum(math.prod(spec.shape) for spec in jax.tree.leaves(specs))


@pytest.fixture(scope="session")
def forecast_of(pytestconfig: pytest.Config) -> Callable[[str, str], Forecast]:
    """Of a recipe on an accelerator, where it fits."""
    file = pytestconfig.getoption("--forecasts")
    rows = [] if file is None else [Forecast(**row) for row in json.loads(Path(file).read_text(encoding="utf-8"))]
    known = {(row.recipe, row.on): row for row in rows}

    def checked(recipe: str, on: str) -> Forecast:
        found = known[recipe, on] if file is not None else forecast(recipe, on=on)
        assert found.problem is None, found.problem
        assert found.fits, f"{found.hbm} bytes of {found.hbm_limit}"
        plan = planned(recipe, on=on)
        for name in ("num_devices", "mesh", "remat", "num_microbatches", "model_flops", "hbm_limit"):
            assert getattr(found, name) == getattr(plan, name), "a forecast of another config"
        return found

    return checked


@pytest.mark.parametrize("on", CLUSTERS)
@pytest.mark.parametrize("recipe", ["llama-2-7b", "llama-2-70b"])
def test_dense_models(recipe: str, on: str, forecast_of: Callable[[str, str], Forecast]) -> None:
    found = forecast_of(recipe, on)
    shards = found.mesh["fsdp"] * found.mesh.get("tensor", 1)
    assert found.arguments == pytest.approx(12 * num_params(recipe) / shards, rel=0.1), "float32, three times"
    # Rematerialisation at most doubles the forward pass; of attention, a tenth of a model's work, little is counted.
    assert found.program_flops is not None
    assert 0.8 < found.program_flops / found.model_flops < 4 / 3
    assert set(found.collectives) <= {"all-gather", "reduce-scatter", "all-reduce", "collective-permute"}
    if "tensor" not in found.mesh:
        # Each part of the batch gathers the bfloat16 weights for its forward and its backward pass, some of them once more.
        # Along a ring of n devices each sends all parts but one, (n - 1) / n of the whole.
        ring = (found.mesh["fsdp"] - 1) / found.mesh["fsdp"]
        whole = 2 * num_params(recipe) * found.num_microbatches * ring
        assert 1.9 < found.collectives["all-gather"] / whole < 3.1
        # Gradients are scattered as they are summed, in bfloat16: once the weights, twice where there are copies of them.
        sums = sum(found.collectives.get(kind, 0.0) for kind in ("reduce-scatter", "all-reduce"))
        most = 1.1 if found.mesh["data"] == 1 else 2.2
        assert sums / whole < most


@pytest.mark.parametrize("on", CLUSTERS)
def test_a_mixture_of_experts(on: str, forecast_of: Callable[[str, str], Forecast]) -> None:
    found = forecast_of("qwen3-30b-a3b", on)
    assert found.collectives["all-reduce"] < found.collectives["all-gather"], (
        "gradients are scattered, not whole everywhere"
    )
