"""Mistral 7B: Llama's blocks with grouped queries; the first version looks through a sliding window (Jiang et al. 2023, arXiv:2310.06825)."""

from __future__ import annotations

from typing import NamedTuple

import ax_kernels
from ax_config import partial_for
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    DenseKVCache,
    GatedFeedForward,
    Repeat,
    RMSNorm,
    SlidingKVCache,
    rotary,
)

from .weight_map import Weight, transposed


class Sizes(NamedTuple):
    """What tells one model of the family from another."""

    num_layers: int
    dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_dim: int
    window: int | None
    rope_theta: float
    vocab_size: int
    norm_eps: float = 1e-5


SIZES = {
    "mistral-7b-v0.1": Sizes(32, 4_096, 32, 8, 128, 14_336, window=4_096, rope_theta=10_000.0, vocab_size=32_000),
    "mistral-7b-v0.3": Sizes(32, 4_096, 32, 8, 128, 14_336, window=None, rope_theta=1_000_000.0, vocab_size=32_768),
}


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm = RMSNorm.Config(eps=sizes.norm_eps)
    block = Block.Config(
        attention=Attention.Config(
            num_heads=sizes.num_heads,
            num_kv_heads=sizes.num_kv_heads,
            head_dim=sizes.head_dim,
            window=sizes.window,
            kv_cache=DenseKVCache.Config() if sizes.window is None else SlidingKVCache.Config(window=sizes.window),
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
        cross_entropy=partial_for(ax_kernels.cross_entropy.base),
    )


def weights(sizes: Sizes) -> list[Weight]:
    """Which parameter is which tensor of a checkpoint in Hugging Face's form."""
    layers = range(sizes.num_layers)
    return [
        Weight("embedding/weight", "model.embed_tokens.weight"),
        Weight("layers/attention_norm/scale", "model.layers.{layer}.input_layernorm.weight", layers=layers),
        Weight("layers/attention/query/weight", "model.layers.{layer}.self_attn.q_proj.weight", transposed, layers),
        Weight("layers/attention/key/weight", "model.layers.{layer}.self_attn.k_proj.weight", transposed, layers),
        Weight("layers/attention/value/weight", "model.layers.{layer}.self_attn.v_proj.weight", transposed, layers),
        Weight("layers/attention/output/weight", "model.layers.{layer}.self_attn.o_proj.weight", transposed, layers),
        Weight("layers/ffn_norm/scale", "model.layers.{layer}.post_attention_layernorm.weight", layers=layers),
        Weight("layers/ffn/gate/weight", "model.layers.{layer}.mlp.gate_proj.weight", transposed, layers),
        Weight("layers/ffn/up/weight", "model.layers.{layer}.mlp.up_proj.weight", transposed, layers),
        Weight("layers/ffn/down/weight", "model.layers.{layer}.mlp.down_proj.weight", transposed, layers),
        Weight("norm/scale", "model.norm.weight"),
        Weight("head/weight", "lm_head.weight"),
    ]
