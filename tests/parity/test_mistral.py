"""Mistral, through a window shorter than the text and without one."""

from __future__ import annotations

import pytest
from ax_recipes import mistral
from transformers import MistralConfig, MistralForCausalLM

from .against import check


@pytest.mark.parametrize("window", [5, None])
def test_mistral(window: int | None) -> None:
    sizes = mistral.Sizes(2, 32, 4, 2, 8, 48, window=window, rope_theta=1_000.0, vocab_size=101)
    config = MistralConfig(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.dim,
        intermediate_size=sizes.hidden_dim,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        rms_norm_eps=sizes.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": sizes.rope_theta},
        sliding_window=window,
        attn_implementation="eager",
    )
    check(MistralForCausalLM(config), mistral.model(sizes), mistral.weights(sizes))
