"""Qwen2 and Qwen2.5: Llama's blocks with biases on queries, keys and values (Yang et al. 2024, arXiv:2407.10671)."""

from __future__ import annotations

from typing import NamedTuple

import ax_kernels
from ax_config import partial_for
from ax_layers import Attention, Block, CausalLM, GatedFeedForward, Head, Linear, Repeat, RMSNorm, rotary

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
    "qwen2-0.5b": Sizes(24, 896, 14, 2, 64, 4_864, tied=True),
    "qwen2-1.5b": Sizes(28, 1_536, 12, 2, 128, 8_960, tied=True),
    "qwen2-7b": Sizes(28, 3_584, 28, 4, 128, 18_944, tied=False, vocab_size=152_064),
    "qwen2-72b": Sizes(80, 8_192, 64, 8, 128, 29_568, tied=False, vocab_size=152_064),
}


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm, biased = RMSNorm.Config(eps=sizes.norm_eps), Linear.Config(use_bias=True)
    block = Block.Config(
        attention=Attention.Config(
            num_heads=sizes.num_heads,
            num_kv_heads=sizes.num_kv_heads,
            head_dim=sizes.head_dim,
            query=biased,
            key=biased,
            value=biased,
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
        Weight("layers/attention/query/bias", "model.layers.{layer}.self_attn.q_proj.bias", layers=layers),
        Weight("layers/attention/key/weight", "model.layers.{layer}.self_attn.k_proj.weight", transposed, layers),
        Weight("layers/attention/key/bias", "model.layers.{layer}.self_attn.k_proj.bias", layers=layers),
        Weight("layers/attention/value/weight", "model.layers.{layer}.self_attn.v_proj.weight", transposed, layers),
        Weight("layers/attention/value/bias", "model.layers.{layer}.self_attn.v_proj.bias", layers=layers),
        Weight("layers/attention/output/weight", "model.layers.{layer}.self_attn.o_proj.weight", transposed, layers),
        Weight("layers/ffn_norm/scale", "model.layers.{layer}.post_attention_layernorm.weight", layers=layers),
        Weight("layers/ffn/gate/weight", "model.layers.{layer}.mlp.gate_proj.weight", transposed, layers),
        Weight("layers/ffn/up/weight", "model.layers.{layer}.mlp.up_proj.weight", transposed, layers),
        Weight("layers/ffn/down/weight", "model.layers.{layer}.mlp.down_proj.weight", transposed, layers),
        Weight("norm/scale", "model.norm.weight"),
        *([] if sizes.tied else [Weight("head/weight", "lm_head.weight")]),
    ]
