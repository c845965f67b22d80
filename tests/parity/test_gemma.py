"""Gemma 2 and 3, with a window shorter than the text."""

from __future__ import annotations

import pytest
from ax_recipes import gemma2, gemma3
from transformers import Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig

from .against import check


def common(sizes: gemma2.Sizes | gemma3.Sizes) -> dict[str, object]:
    return {
        "vocab_size": 101,
        "hidden_size": sizes.dim,
        "intermediate_size": sizes.hidden_dim,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_dim,
        "query_pre_attn_scalar": sizes.query_scale,
        "sliding_window": sizes.window,
        "attn_implementation": "eager",
    }


def test_gemma2() -> None:
    sizes = gemma2.Sizes(4, 32, 4, 2, 16, 48, query_scale=9, window=5, attention_cap=1.5, logit_cap=2.0)
    config = Gemma2Config(
        **common(sizes), attn_logit_softcapping=sizes.attention_cap, final_logit_softcapping=sizes.logit_cap
    )
    check(Gemma2ForCausalLM(config), gemma2.model(sizes), gemma2.weights(sizes))


@pytest.mark.parametrize(("num_layers", "rope_factor"), [(6, None), (14, 8.0)])
def test_gemma3(num_layers: int, rope_factor: float | None) -> None:
    sizes = gemma3.Sizes(num_layers, 32, 4, 2, 16, 48, window=5, query_scale=9, rope_factor=rope_factor)
    rope = {"rope_type": "default"} if rope_factor is None else {"rope_type": "linear", "factor": rope_factor}
    config = Gemma3TextConfig(
        **common(sizes),
        rope_parameters={
            "full_attention": {"rope_theta": 1_000_000.0, **rope},
            "sliding_attention": {"rope_theta": 10_000.0, "rope_type": "default"},
        },
    )
    check(Gemma3ForCausalLM(config), gemma3.model(sizes), gemma3.weights(sizes))
