"""What every recipe is on every accelerator, after its mesh rules: kept as text, buildable, and told who set it."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from ax_config import NoMatchError, explain
from ax_config.pytest_plugin import Golden
from ax_config.testing import check_config, check_modifier
from ax_layers import as_model
from ax_mesh import ACCELERATORS, MeshRules
from ax_recipes import CATALOGUE, effective, for_accelerator, goldens, recipe
from ax_recipes.mesh_rules import small

EFFECTIVE = goldens()


def test_effective_configs_are_golden(golden: Golden) -> None:
    assert {name.partition("/")[0] for name in EFFECTIVE} == set(CATALOGUE)
    golden.check_all(EFFECTIVE)


@pytest.mark.parametrize("name", EFFECTIVE)
def test_effective_configs_build_and_have_a_loss(name: str) -> None:
    config = EFFECTIVE[name]()
    check_config(config)
    assert config.mesh_rules is None
    model = as_model(config.build().model)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0)))
    tokens = jax.ShapeDtypeStruct((2, 16), np.int32)
    loss, _ = jax.eval_shape(
        lambda params, batch: model.loss(params, batch, key=jax.random.key(0), train=True),
        params,
        {"tokens": tokens, "targets": tokens},
    )
    assert loss.shape == ()
    assert loss.dtype == np.float32


@pytest.mark.parametrize("accelerator", ["cpu-1", "h100-8", "v5e-8"])
def test_mesh_rules_are_modifiers_like_any_other(accelerator: str) -> None:
    config = recipe("tiny")()
    check_modifier(small().clone(accelerator=accelerator), config.clone(mesh_rules=None))
    check_config(config)  # with its rules in it


def test_an_accelerator_without_a_rule_is_an_error() -> None:
    with pytest.raises(NoMatchError, match=r"'h101-8'; did you mean h100"):
        for_accelerator(recipe("tiny")(), "h101-8")


@pytest.mark.parametrize("name", CATALOGUE)
def test_pages_have_a_row_for_every_accelerator_and_for_nothing_else(name: str) -> None:
    rules = recipe(name)().mesh_rules
    assert isinstance(rules, MeshRules)
    kinds = {row.name for row in ACCELERATORS}
    assert {pattern.partition("-")[0] for pattern in rules.rules} == kinds
    for row in ACCELERATORS:
        assert for_accelerator(recipe(name)(), row.one_host).mesh_rules is None


def test_there_are_as_many_parts_as_chips_are_fewer() -> None:
    parts = [effective("qwen3-30b-a3b", on=f"h100-{n}").trainer.num_microbatches for n in (64, 128, 256, 512, 1_024)]  # type: ignore[attr-defined]  # a Trainer.Config
    assert parts == [16, 8, 4, 2, 1]


def test_every_value_knows_the_rule_that_set_it() -> None:
    config = for_accelerator(recipe("tiny")(), "v5e-8")
    newest, *older = explain(config, "mesh.axes").steps
    assert newest.how == "set"
    assert any("accelerator='v5e-8'" in who for who in newest.by)
    assert older[-1].how == "default"
    dims = explain(config, "model.layers.layer.layer.ffn.hidden_dim").steps
    assert dims[0].where.endswith("in model")
    assert any(step.how == "replaced" and "Remat" in step.value for step in dims)
