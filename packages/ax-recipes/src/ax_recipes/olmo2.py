"""OLMo 2: norms after each layer instead of before it, and whole queries and keys normalised (OLMo team 2024, arXiv:2501.00656)."""

from __future__ import annotations

from typing import NamedTuple

import ax_kernels
from ax_config import partial_for
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    GatedFeedForward,
    Identity,
    NormalisedProjection,
    Repeat,
    RMSNorm,
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
    vocab_size: int = 100_352
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-6


SIZES = {
    "olmo2-1b": Sizes(16, 2_048, 16, 16, 128, 8_192),
    "olmo2-7b": Sizes(32, 4_096, 32, 32, 128, 11_008),
    "olmo2-13b": Sizes(40, 5_120, 40, 40, 128, 13_824),
    "olmo2-32b": Sizes(64, 5_120, 40, 8, 128, 27_648),
}


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm = RMSNorm.Config(eps=sizes.norm_eps)
    normalised = NormalisedProjection.Config(norm=norm)
    block = Block.Config(
        attention=Attention.Config(
            num_heads=sizes.num_heads,
            num_kv_heads=sizes.num_kv_heads,
            head_dim=sizes.head_dim,
            query=normalised,
            key=normalised,
            position_encoding=partial_for(rotary, theta=sizes.rope_theta),
            attention_fn=partial_for(ax_kernels.attention.blocked),
        ),
        ffn=GatedFeedForward.Config(hidden_dim=sizes.hidden_dim),
        norm=Identity.Config(),
        output_norm=norm,
    )
    return CausalLM.Config(
        dim=sizes.dim,
        layers=Repeat.Config(num_layers=sizes.num_layers, layer=block),
        norm=norm,
        cross_entropy=partial_for(ax_kernels.cross_entropy.base),
    )


def weights(sizes: Sizes) -> list[Weight]:
    """Which parameter is which tensor of a checkpoint in Hugging Face's form."""
    layers, block = range(sizes.num_layers), "model.layers.{layer}."
    return [
        Weight("embedding/weight", "model.embed_tokens.weight"),
        Weight("layers/attention/query/projection/weight", block + "self_attn.q_proj.weight", transposed, layers),
        Weight("layers/attention/query/norm/scale", block + "self_attn.q_norm.weight", layers=layers),
        Weight("layers/attention/key/projection/weight", block + "self_attn.k_proj.weight", transposed, layers),
        Weight("layers/attention/key/norm/scale", block + "self_attn.k_norm.weight", layers=layers),
        Weight("layers/attention/value/weight", block + "self_attn.v_proj.weight", transposed, layers),
        Weight("layers/attention/output/weight", block + "self_attn.o_proj.weight", transposed, layers),
        Weight("layers/attention_output_norm/scale", block + "post_attention_layernorm.weight", layers=layers),
        Weight("layers/ffn/gate/weight", block + "mlp.gate_proj.weight", transposed, layers),
        Weight("layers/ffn/up/weight", block + "mlp.up_proj.weight", transposed, layers),
        Weight("layers/ffn/down/weight", block + "mlp.down_proj.weight", transposed, layers),
        Weight("layers/ffn_output_norm/scale", block + "post_feedforward_layernorm.weight", layers=layers),
        Weight("norm/scale", "model.norm.weight"),
        Weight("head/weight", "lm_head.weight"),
    ]
