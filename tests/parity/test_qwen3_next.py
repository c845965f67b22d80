"""Qwen3-Next."""

from __future__ import annotations

import pytest
from ax_config import overriding
from ax_recipes import qwen3_next
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

from .against import check


@pytest.mark.parametrize(("num_layers", "linear_per_full"), [(4, 1), (3, 2)])
def test_qwen3_next(num_layers: int, linear_per_full: int) -> None:
    sizes = qwen3_next.Sizes(
        num_layers=num_layers,
        dim=32,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        num_key_heads=2,
        key_dim=8,
        num_value_heads=4,
        value_dim=6,
        num_experts=4,
        experts_per_token=2,
        expert_dim=12,
        shared_expert_dim=20,
        linear_per_full=linear_per_full,
    )
    theirs = Qwen3NextConfig(
        vocab_size=101,
        hidden_size=sizes.dim,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        rms_norm_eps=sizes.norm_eps,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": sizes.rope_theta,
            "partial_rotary_factor": sizes.rotary_fraction,
        },
        linear_conv_kernel_dim=sizes.conv_width,
        linear_key_head_dim=sizes.key_dim,
        linear_value_head_dim=sizes.value_dim,
        linear_num_key_heads=sizes.num_key_heads,
        linear_num_value_heads=sizes.num_value_heads,
        moe_intermediate_size=sizes.expert_dim,
        shared_expert_intermediate_size=sizes.shared_expert_dim,
        num_experts=sizes.num_experts,
        num_experts_per_tok=sizes.experts_per_token,
        full_attention_interval=sizes.linear_per_full + 1,
        attn_implementation="eager",
    )
    ours = overriding("**.delta_rule_fn.chunk_size=5")(qwen3_next.model(sizes))
    check(Qwen3NextForCausalLM(theirs), ours, qwen3_next.weights(sizes))
