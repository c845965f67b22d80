"""Qwen3, the dense models: Llama's blocks with every head's query and key normalised (Yang et al. 2025, arXiv:2505.09388)."""

from __future__ import annotations

from typing import NamedTuple

import ax_kernels
from ax_config import partial_for
from ax_layers import Attention, Block, CausalLM, GatedFeedForward, Head, Repeat, RMSNorm, rotary

from .weight_map import Weight, transposed


class Sizes(NamedTuple):
    """What tells one model of the family from another."""

    num_layers: int
    dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_dim: int
    tied: bool
    vocab_size: int = 151_936
    rope_theta: float = 1_000_000.0
    norm_eps: float = 1e-6


SIZES = {
    "qwen3-0.6b": Sizes(28, 1_024, 16, 8, 128, 3_072, tied=True),
    "qwen3-1.7b": Sizes(28, 2_048, 16, 8, 128, 6_144, tied=True),
    "qwen3-4b": Sizes(36, 2_560, 32, 8, 128, 9_728, tied=True),
    "qwen3-8b": Sizes(36, 4_096, 32, 8, 128, 12_288, tied=False),
    "qwen3-14b": Sizes(40, 5_120, 40, 8, 128, 17_408, tied=False),
    "qwen3-32b": Sizes(64, 5_120, 64, 8, 128, 25_600, tied=False),
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
        ffn=GatedFeedForward.Config(hidden_dim=sizes.hidden_dim),
        norm=norm,
    )
    return CausalLM.Config(
        dim=sizes.dim,
        layers=Repeat.Config(num_layers=sizes.num_layers, layer=block),
        norm=norm,
        head=None if sizes.tied else Head.Config(),
        cross_entropy=partial_for(ax_kernels.cross_entropy.base),
    )


def weights(sizes: Sizes) -> list[Weight]:
    """Which parameter is which tensor of a checkpoint in Hugging Face's form."""
    layers = range(sizes.num_layers)
    return [
        Weight("embedding/weight", "model.embed_tokens.weight"),
        Weight("layers/attention_norm/scale", "model.layers.{layer}.input_layernorm.weight", layers=layers),
        Weight("layers/attention/query/weight", "model.layers.{layer}.self_attn.q_proj.weight", transposed, layers),
        Weight("layers/attention/query_norm/scale", "model.layers.{layer}.self_attn.q_norm.weight", layers=layers),
        Weight("layers/attention/key/weight", "model.layers.{layer}.self_attn.k_proj.weight", transposed, layers),
        Weight("layers/attention/key_norm/scale", "model.layers.{layer}.self_attn.k_norm.weight", layers=layers),
        Weight("layers/attention/value/weight", "model.layers.{layer}.self_attn.v_proj.weight", transposed, layers),
        Weight("layers/attention/output/weight", "model.layers.{layer}.self_attn.o_proj.weight", transposed, layers),
        Weight("layers/ffn_norm/scale", "model.layers.{layer}.post_attention_layernorm.weight", layers=layers),
        Weight("layers/ffn/gate/weight", "model.layers.{layer}.mlp.gate_proj.weight", transposed, layers),
        Weight("layers/ffn/up/weight", "model.layers.{layer}.mlp.up_proj.weight", transposed, layers),
        Weight("layers/ffn/down/weight", "model.layers.{layer}.mlp.down_proj.weight", transposed, layers),
        Weight("norm/scale", "model.norm.weight"),
        *([] if sizes.tied else [Weight("head/weight", "lm_head.weight")]),
    ]
