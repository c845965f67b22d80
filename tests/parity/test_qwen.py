"""Qwen 2 and 3, dense."""

from __future__ import annotations

from ax_recipes import qwen2, qwen3
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from .against import check


def common(sizes: qwen2.Sizes | qwen3.Sizes) -> dict[str, object]:
    return {
        "vocab_size": 101,
        "hidden_size": sizes.dim,
        "intermediate_size": sizes.hidden_dim,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "rms_norm_eps": sizes.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": sizes.rope_theta},
        "tie_word_embeddings": sizes.tied,
        "attn_implementation": "eager",
    }


def test_qwen2() -> None:
    sizes = qwen2.Sizes(num_layers=3, dim=32, num_heads=4, num_kv_heads=2, head_dim=8, hidden_dim=48, tied=True)
    check(Qwen2ForCausalLM(Qwen2Config(**common(sizes))), qwen2.model(sizes), qwen2.weights(sizes))


def test_qwen3() -> None:
    sizes = qwen3.Sizes(num_layers=3, dim=32, num_heads=4, num_kv_heads=2, head_dim=16, hidden_dim=48, tied=False)
    theirs = Qwen3ForCausalLM(Qwen3Config(**common(sizes), head_dim=sizes.head_dim))
    check(theirs, qwen3.model(sizes), qwen3.weights(sizes))
