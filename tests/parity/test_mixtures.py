"""Mixtral, Qwen3-MoE and DeepSeek-V3."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from ax_config import partial_for
from ax_layers import CausalLM, TopKRouter, functional, load_balance_loss
from ax_recipes import deepseek, mixtral, qwen3_moe
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from .against import check, close

S = TypeVar("S", mixtral.Sizes, qwen3_moe.Sizes, deepseek.Sizes)


def as_mixtral(sizes: mixtral.Sizes) -> MixtralForCausalLM:
    config = MixtralConfig(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.dim,
        intermediate_size=sizes.hidden_dim,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        num_local_experts=sizes.num_experts,
        num_experts_per_tok=sizes.experts_per_token,
        rms_norm_eps=sizes.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": sizes.rope_theta},
        attn_implementation="eager",
    )
    return MixtralForCausalLM(config)


def as_qwen3_moe(sizes: qwen3_moe.Sizes) -> Qwen3MoeForCausalLM:
    config = Qwen3MoeConfig(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.dim,
        moe_intermediate_size=sizes.hidden_dim,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        num_experts=sizes.num_experts,
        num_experts_per_tok=sizes.experts_per_token,
        norm_topk_prob=True,
        rms_norm_eps=sizes.norm_eps,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": sizes.rope_theta},
        attn_implementation="eager",
    )
    return Qwen3MoeForCausalLM(config)


def as_deepseek(sizes: deepseek.Sizes) -> DeepseekV3ForCausalLM:
    config = DeepseekV3Config(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.dim,
        intermediate_size=sizes.hidden_dim,
        moe_intermediate_size=sizes.expert_dim,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_heads,
        n_shared_experts=sizes.shared_dim // sizes.expert_dim,
        n_routed_experts=sizes.num_experts,
        routed_scaling_factor=sizes.weight_scale,
        kv_lora_rank=sizes.latent_dim,
        q_lora_rank=sizes.query_rank,
        qk_rope_head_dim=sizes.rotary_dim,
        v_head_dim=sizes.value_dim,
        qk_nope_head_dim=sizes.head_dim,
        n_group=sizes.num_groups,
        topk_group=sizes.num_kept_groups,
        num_experts_per_tok=sizes.experts_per_token,
        first_k_dense_replace=sizes.num_dense_layers,
        rms_norm_eps=sizes.norm_eps,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": sizes.rope_theta,
            "factor": sizes.rope_factor,
            "original_max_position_embeddings": sizes.original_length,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        attn_implementation="eager",
    )
    return DeepseekV3ForCausalLM(config)


SMALL_MIXTRAL = mixtral.Sizes(2, 32, 4, 2, 8, 24, num_experts=4, experts_per_token=2, vocab_size=101)
SMALL_QWEN3_MOE = qwen3_moe.Sizes(2, 32, 4, 2, 8, 12, num_experts=8, experts_per_token=3, vocab_size=101)
SMALL_DEEPSEEK = deepseek.Sizes(
    num_dense_layers=1,
    num_layers=3,
    dim=32,
    num_heads=4,
    head_dim=8,
    rotary_dim=16,
    value_dim=12,
    query_rank=24,
    latent_dim=20,
    hidden_dim=48,
    expert_dim=12,
    shared_dim=24,
    num_experts=8,
    experts_per_token=3,
    num_groups=4,
    num_kept_groups=2,
    rope_factor=4.0,
    original_length=64,
    vocab_size=101,
)


def test_mixtral() -> None:
    theirs = as_mixtral(SMALL_MIXTRAL)
    apart = functools.partial(revert_weight_conversion, theirs)
    check(theirs, mixtral.model(SMALL_MIXTRAL), mixtral.weights(SMALL_MIXTRAL), published=apart)


def test_qwen3_moe() -> None:
    theirs = as_qwen3_moe(SMALL_QWEN3_MOE)
    apart = functools.partial(revert_weight_conversion, theirs)
    check(theirs, qwen3_moe.model(SMALL_QWEN3_MOE), qwen3_moe.weights(SMALL_QWEN3_MOE), published=apart)


def test_deepseek_v3() -> None:
    theirs = as_deepseek(SMALL_DEEPSEEK)
    apart = functools.partial(revert_weight_conversion, theirs)
    for layer in theirs.model.layers[SMALL_DEEPSEEK.num_dense_layers :]:
        layer.mlp.gate.e_score_correction_bias.normal_(std=0.1)
    check(theirs, deepseek.model(SMALL_DEEPSEEK), deepseek.weights(SMALL_DEEPSEEK), published=apart)


def test_the_load_balance_loss_is_mixtrals() -> None:
    num_experts, top_k = 8, 3
    router = TopKRouter.Config(
        dim=num_experts,
        num_experts=num_experts,
        top_k=top_k,
        losses={"load_balance": partial_for(load_balance_loss, weight=float(top_k))},  # theirs grows with top-k
    ).build()
    logits = np.random.default_rng(0).standard_normal((2, 24, num_experts)).astype(np.float32)
    given = torch.tensor(logits.reshape(-1, num_experts), requires_grad=True)
    wanted = load_balancing_loss_func((given,), num_experts, top_k)
    wanted.backward()

    def ours(logits: jax.Array) -> jax.Array:
        _, collected = functional(router)({"weight": jnp.eye(num_experts)}, None, logits)
        return collected.outputs["aux_loss"]

    value, slope = jax.value_and_grad(ours)(jnp.asarray(logits))
    close(value, wanted.item(), 1e-5, "the loss")
    close(slope.reshape(given.shape), given.grad.numpy(), 1e-4, "its gradient")


@pytest.mark.parametrize(
    ("theirs", "ours", "sizes"),
    [
        (as_mixtral, mixtral.model, mixtral.SIZES["mixtral-8x7b"]),
        (as_qwen3_moe, qwen3_moe.model, qwen3_moe.SIZES["qwen3-30b-a3b"]),
        (as_deepseek, deepseek.model, deepseek.SIZES["deepseek-v3"]),
    ],
)
def test_published_sizes_have_as_many_parameters(
    theirs: Callable[[S], PreTrainedModel], ours: Callable[[S], CausalLM.Config], sizes: S
) -> None:
    with torch.device("meta"):
        wanted = sum(tensor.numel() for tensor in theirs(sizes).state_dict().values())
    specs = ours(sizes).build(vocab_size=sizes.vocab_size).specs()
    assert sum(math.prod(spec.shape) for spec in jax.tree.leaves(specs)) == wanted
