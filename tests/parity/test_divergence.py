"""A model of transformers and ours, module by module: they agree everywhere, and a planted mistake is named where it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ax_recipes import llama
from ax_recipes._records import Record
from ax_recipes._transformers import record_both
from ax_trainer import first_divergence
from transformers import LlamaForCausalLM

from .against import randomise
from .test_llama import theirs

SIZES = llama.Sizes(num_layers=3, dim=32, num_heads=4, num_kv_heads=2, head_dim=8, hidden_dim=48)


def both(model: LlamaForCausalLM) -> tuple[Record, Record]:
    tokens = np.random.default_rng(0).integers(0, 101, (2, 17), dtype=np.int32)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    return record_both(model, llama.model(SIZES).clone(vocab_size=101), llama.weights(SIZES), batch)


@pytest.fixture
def model() -> LlamaForCausalLM:
    model = theirs(SIZES)
    randomise(model)
    return model


def test_the_same_weights_give_the_same_in_every_module(model: LlamaForCausalLM) -> None:
    ours, others = both(model)
    found = ours.compare(others)
    assert first_divergence(found, tolerance=1e-4) is None
    compared = {each.name for each in found}
    assert {"forward/layers/attention.2", "forward/layers/ffn/up.0", "forward/layers.1", "loss"} <= compared
    assert {"forward/embedding", "gradients/layers/attention/query/weight.0", "gradients/head/weight"} <= compared


def test_a_planted_mistake_is_named(model: LlamaForCausalLM) -> None:
    def off(_module: torch.nn.Module, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        return output * 1.01

    model.model.layers[1].mlp.gate_proj.register_forward_hook(off)
    ours, others = both(model)
    found = first_divergence(ours.compare(others), tolerance=1e-4)
    assert found is not None
    assert found.name == "forward/layers/ffn/gate.1"
