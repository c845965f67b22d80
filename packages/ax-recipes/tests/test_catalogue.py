"""Recipes by name, and what they describe."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ax_config import NoMatchError, dumps, get_at, loads
from ax_config.testing import check_config
from ax_layers import CausalLM
from ax_recipes import CATALOGUE, Experiment, ExperimentError, recipe
from ax_recipes.llama import SIZES, model


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_recipe_describes_an_experiment(name: str) -> None:
    config = recipe(name)()
    check_config(config)
    assert config.name == name
    assert isinstance(loads(dumps(config)), Experiment.Config)
    assert recipe(name).__doc__
    experiment = config.build()
    assert experiment.model.training_flops_per_token(256) > 0


def test_the_number_of_steps_reaches_the_schedule() -> None:
    config = recipe("tiny")(num_steps=77)
    assert config.num_steps == get_at(config, "trainer.optimizer.schedule.decay_steps") == 77


def test_recipes_of_strangers_are_found_by_import_name_and_mistakes_named() -> None:
    assert recipe("ax_recipes.llama:tiny") is recipe("tiny")
    with pytest.raises(NoMatchError, match="did you mean tiny"):
        recipe("tinny")
    with pytest.raises(NoMatchError, match="nowhere"):
        recipe("nowhere:tiny")
    with pytest.raises(NoMatchError, match="tinny"):
        recipe("ax_recipes.llama:tinny")


@pytest.mark.parametrize(
    ("size", "vocab_size", "num_params"),
    [("60m", 32_000, 58_466_816), ("smollm2-135m", 49_152, 134_515_008)],
)
def test_models_have_their_published_number_of_parameters(size: str, vocab_size: int, num_params: int) -> None:
    built = model(SIZES[size]).build(vocab_size=vocab_size)
    assert isinstance(built, CausalLM)
    assert sum_of_sizes(built.specs()) == num_params


def sum_of_sizes(specs: object) -> int:
    import math

    import jax

    return sum(math.prod(spec.shape) for spec in jax.tree.leaves(specs))


def test_a_vocabulary_too_small_for_the_tokenizer_is_refused() -> None:
    config = recipe("tiny")()
    config.vocab_size = 100
    with pytest.raises(ExperimentError, match="vocab_size is 100, but the tokenizer has 257"):
        config.build()
    config.vocab_size = 384
    assert config.build().model.specs()["embedding"]["weight"].shape == (384, 160)  # type: ignore[index,union-attr]


def test_importing_the_catalogue_loads_nothing_heavy() -> None:
    code = "import sys, ax_recipes; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "ax_trainer" in loaded
    heavy = {"orbax", "orbax.checkpoint", "grain", "optax", "tensorboardX", "tensorstore", "pyarrow", "rich", "typer"}
    assert not loaded & heavy
