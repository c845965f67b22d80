"""Gemma 2: local and global attention in turn, capped logits, norms around each layer (Gemma team 2024, arXiv:2408.00118)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import ax_kernels
import jax
from ax_config import partial_for
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    Embedding,
    GatedFeedForward,
    Repeat,
    RMSNorm,
    SlidingKVCache,
    Stack,
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
    query_scale: float  # logits are divided by its root
    window: int = 4_096
    attention_cap: float = 50.0
    logit_cap: float = 30.0
    vocab_size: int = 256_000


SIZES = {
    "gemma-2-2b": Sizes(26, 2_304, 8, 4, 256, 9_216, query_scale=256),
    "gemma-2-9b": Sizes(42, 3_584, 16, 8, 256, 14_336, query_scale=256),
    "gemma-2-27b": Sizes(46, 4_608, 32, 16, 128, 36_864, query_scale=144),
}


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm = RMSNorm.Config(eps=1e-6, unit_offset=True)
    everywhere = Attention.Config(
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        scale=sizes.query_scale**-0.5,
        logit_cap=sizes.attention_cap,
        position_encoding=partial_for(rotary),
        attention_fn=partial_for(ax_kernels.attention.blocked),
    )
    nearby = everywhere.clone(window=sizes.window, kv_cache=SlidingKVCache.Config(window=sizes.window))

    def block(attention: Attention.Config) -> Block.Config:
        return Block.Config(
            attention=attention,
            ffn=GatedFeedForward.Config(
                hidden_dim=sizes.hidden_dim, activation=partial_for(jax.nn.gelu, approximate=True)
            ),
            norm=norm,
            output_norm=norm,
        )

    return CausalLM.Config(
        dim=sizes.dim,
        embedding=Embedding.Config(scale=sizes.dim**0.5),
        layers=Repeat.Config(
            num_layers=sizes.num_layers // 2,
            layer=Stack.Config(layers={"local": block(nearby), "global": block(everywhere)}),
        ),
        norm=norm,
        head=None,
        logit_cap=sizes.logit_cap,
        cross_entropy=partial_for(ax_kernels.cross_entropy.base),
    )


def weights(sizes: Sizes) -> list[Weight]:
    """Which parameter is which tensor of a checkpoint in Hugging Face's form."""
    return [
        Weight("embedding/weight", "model.embed_tokens.weight"),
        *block_weights("layers/local", range(0, sizes.num_layers, 2)),
        *block_weights("layers/global", range(1, sizes.num_layers, 2)),
        Weight("norm/scale", "model.norm.weight"),
    ]


def block_weights(ours: str, layers: Sequence[int]) -> list[Weight]:
    """The part of the map for the block at ``ours``, which stands for these layers of the checkpoint."""
    theirs = "model.layers.{layer}."
    return [
        Weight(f"{ours}/attention_norm/scale", theirs + "input_layernorm.weight", layers=layers),
        Weight(f"{ours}/attention/query/weight", theirs + "self_attn.q_proj.weight", transposed, layers),
        Weight(f"{ours}/attention/key/weight", theirs + "self_attn.k_proj.weight", transposed, layers),
        Weight(f"{ours}/attention/value/weight", theirs + "self_attn.v_proj.weight", transposed, layers),
        Weight(f"{ours}/attention/output/weight", theirs + "self_attn.o_proj.weight", transposed, layers),
        Weight(f"{ours}/attention_output_norm/scale", theirs + "post_attention_layernorm.weight", layers=layers),
        Weight(f"{ours}/ffn_norm/scale", theirs + "pre_feedforward_layernorm.weight", layers=layers),
        Weight(f"{ours}/ffn/gate/weight", theirs + "mlp.gate_proj.weight", transposed, layers),
        Weight(f"{ours}/ffn/up/weight", theirs + "mlp.up_proj.weight", transposed, layers),
        Weight(f"{ours}/ffn/down/weight", theirs + "mlp.down_proj.weight", transposed, layers),
        Weight(f"{ours}/ffn_output_norm/scale", theirs + "post_feedforward_layernorm.weight", layers=layers),
    ]
