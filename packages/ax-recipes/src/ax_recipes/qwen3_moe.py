"""Qwen3's mixtures of experts: many small experts in every block, queries and keys normalised (arXiv:2505.09388)."""

from __future__ import annotations

from typing import NamedTuple

import ax_kernels
from ax_config import partial_for
from ax_input import TextInput
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    GatedExperts,
    MoE,
    Repeat,
    RMSNorm,
    TopKRouter,
    load_balance_loss,
    rotary,
)
from ax_trainer import Trainer

from . import mesh_rules
from ._experiment import Experiment
from .llama import adamw
from .weight_map import Weight, transposed


class Sizes(NamedTuple):
    """What tells one model of the family from another."""

    num_layers: int
    dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_dim: int  # of one expert
    num_experts: int = 128
    experts_per_token: int = 8
    rope_theta: float = 1_000_000.0
    norm_eps: float = 1e-6
    balance_weight: float = 0.001
    vocab_size: int = 151_936  # of the published model; recipes leave it to their tokenizer


SIZES = {
    "qwen3-30b-a3b": Sizes(48, 2_048, 32, 4, 128, 768),
    "qwen3-235b-a22b": Sizes(94, 4_096, 64, 4, 128, 1_536),
}


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm = RMSNorm.Config(eps=sizes.norm_eps)
    block = Block.Config(
        attention=Attention.Config(
            num_heads=sizes.num_heads,
            num_kv_heads=sizes.num_kv_heads,
            head_dim=sizes.head_dim,
            qk_norm=norm,
            position_encoding=partial_for(rotary, theta=sizes.rope_theta),
            attention_fn=partial_for(ax_kernels.attention.blocked),
        ),
        ffn=MoE.Config(
            num_experts=sizes.num_experts,
            router=TopKRouter.Config(
                top_k=sizes.experts_per_token,
                losses={"load_balance": partial_for(load_balance_loss, weight=sizes.balance_weight)},
            ),
            experts=GatedExperts.Config(hidden_dim=sizes.hidden_dim),
        ),
        norm=norm,
    )
    return CausalLM.Config(
        dim=sizes.dim,
        layers=Repeat.Config(num_layers=sizes.num_layers, layer=block),
        norm=norm,
        cross_entropy=partial_for(ax_kernels.cross_entropy.base),
    )


def weights(sizes: Sizes) -> list[Weight]:
    """Which parameter is which tensor of a checkpoint in Hugging Face's form."""
    layers, experts = range(sizes.num_layers), range(sizes.num_experts)
    layer = "model.layers.{layer}"
    expert = layer + ".mlp.experts.{expert}"
    return [
        Weight("embedding/weight", "model.embed_tokens.weight"),
        Weight("layers/attention_norm/scale", f"{layer}.input_layernorm.weight", layers=layers),
        Weight("layers/attention/query/weight", f"{layer}.self_attn.q_proj.weight", transposed, layers),
        Weight("layers/attention/query_norm/scale", f"{layer}.self_attn.q_norm.weight", layers=layers),
        Weight("layers/attention/key/weight", f"{layer}.self_attn.k_proj.weight", transposed, layers),
        Weight("layers/attention/key_norm/scale", f"{layer}.self_attn.k_norm.weight", layers=layers),
        Weight("layers/attention/value/weight", f"{layer}.self_attn.v_proj.weight", transposed, layers),
        Weight("layers/attention/output/weight", f"{layer}.self_attn.o_proj.weight", transposed, layers),
        Weight("layers/ffn_norm/scale", f"{layer}.post_attention_layernorm.weight", layers=layers),
        Weight("layers/ffn/router/weight", f"{layer}.mlp.gate.weight", transposed, layers),
        Weight("layers/ffn/experts/gate", f"{expert}.gate_proj.weight", transposed, layers, experts),
        Weight("layers/ffn/experts/up", f"{expert}.up_proj.weight", transposed, layers, experts),
        Weight("layers/ffn/experts/down", f"{expert}.down_proj.weight", transposed, layers, experts),
        Weight("norm/scale", "model.norm.weight"),
        Weight("head/weight", "lm_head.weight"),
    ]


def qwen3_30b_a3b(*, num_steps: int = 60_000) -> Experiment.Config:
    """Qwen3 with thirty billion parameters, of which a token meets three, seventeen million tokens a step, on bytes."""
    sizes = SIZES["qwen3-30b-a3b"]
    return Experiment.Config(
        name="qwen3-30b-a3b",
        num_steps=num_steps,
        model=model(sizes),
        vocab_size=sizes.vocab_size,
        input=TextInput.Config(seq_length=16_384, batch_size=1_024),
        trainer=Trainer.Config(
            optimizer=adamw(num_steps=num_steps, learning_rate=3e-4, warmup_steps=min(2_000, num_steps // 10)),
            evaluate_every=1_000,
            checkpoint_every=1_000,
        ),
        max_validation_batches=8,
        mesh_rules=mesh_rules.qwen3_30b_a3b(),
    )
