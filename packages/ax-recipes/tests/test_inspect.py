"""``ax inspect`` and the published models."""

from __future__ import annotations

import math

import jax
import pytest
from ax_config import NoMatchError
from ax_config.testing import check_config
from ax_layers import CausalLM, inventory
from ax_recipes import model, model_names
from ax_recipes.cli import main


@pytest.mark.parametrize("name", model_names())
def test_every_published_model_builds(name: str) -> None:
    config = model(name)
    check_config(config)
    built = config.build(vocab_size=config.__dict__.get("vocab_size", 1_000))
    assert isinstance(built, CausalLM)
    root, *_ = inventory(built, seq_length=128)
    assert root.num_params == sum(math.prod(spec.shape) for spec in jax.tree.leaves(built.specs()))


def test_a_model_that_isnt_there_is_named_with_the_nearest() -> None:
    assert len(set(model_names())) == len(model_names())
    with pytest.raises(NoMatchError, match=r"'llama-2-7'; did you mean .*llama-2-7b"):
        model("llama-2-7")


def test_the_command_prints_every_module(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("sys.argv", ["ax", "inspect", "tiny", "--seq-length", "256"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    told = capsys.readouterr().out
    (ffn,) = [line.split() for line in told.splitlines() if line.split()[:1] == ["ffn"]]
    assert ffn == ["ffn", "1,244,160", "4.7", "MiB", "7.5", "M", "52.0%", "GatedFeedForward"]
    assert "sequences of 256 tokens" in told
