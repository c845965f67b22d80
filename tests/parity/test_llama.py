"""Llama 2 and 3."""

from __future__ import annotations

from ax_recipes import llama
from transformers import LlamaConfig, LlamaForCausalLM

from .against import check


def theirs(sizes: llama.Sizes, **more: object) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=101,
        hidden_size=sizes.dim,
        intermediate_size=sizes.hidden_dim,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        rms_norm_eps=sizes.norm_eps,
        tie_word_embeddings=sizes.tied,
        attn_implementation="eager",
        **more,
    )
    return LlamaForCausalLM(config)


def test_llama_2() -> None:
    sizes = llama.Sizes(num_layers=3, dim=32, num_heads=4, num_kv_heads=4, head_dim=8, hidden_dim=48)
    check(theirs(sizes), llama.model(sizes), llama.weights(sizes))


def test_llama_3() -> None:
    sizes = llama.Sizes(2, 32, 4, 2, 16, 48, rope_theta=500_000.0, rope_factor=8.0, tied=True)
    rope = {
        "rope_type": "llama3",
        "rope_theta": sizes.rope_theta,
        "factor": sizes.rope_factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8_192,
    }
    check(theirs(sizes, rope_parameters=rope), llama.model(sizes), llama.weights(sizes))
