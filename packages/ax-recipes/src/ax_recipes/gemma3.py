"""Gemma 3, the language models: five local layers to a global one (Gemma team 2025, arXiv:2503.19786)."""

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
    linear_scaling,
    rotary,
)

from .weight_map import Weight, transposed

NUM_LOCAL = 5
"""Local layers before each global one."""


class Sizes(NamedTuple):
    """What tells one model of the family from another."""

    num_layers: int
    dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_dim: int
    window: int
    query_scale: float  # logits are divided by its root
    rope_factor: float | None = None  # global layers' positions are squeezed by it
    vocab_size: int = 262_144


SIZES = {
    "gemma-3-270m": Sizes(18, 640, 4, 1, 256, 2_048, window=512, query_scale=256),
    "gemma-3-1b": Sizes(26, 1_152, 4, 1, 256, 6_912, window=512, query_scale=256),
    "gemma-3-4b": Sizes(34, 2_560, 8, 4, 256, 10_240, 1_024, query_scale=256, rope_factor=8.0, vocab_size=262_208),
    "gemma-3-12b": Sizes(48, 3_840, 16, 8, 256, 15_360, 1_024, query_scale=256, rope_factor=8.0, vocab_size=262_208),
    "gemma-3-27b": Sizes(62, 5_376, 32, 16, 128, 21_504, 1_024, query_scale=168, rope_factor=8.0, vocab_size=262_208),
}


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm = RMSNorm.Config(eps=1e-6, unit_offset=True)
    scaling = None if sizes.rope_factor is None else partial_for(linear_scaling, factor=sizes.rope_factor)
    everywhere = Attention.Config(
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        scale=sizes.query_scale**-0.5,
        qk_norm=norm,
        position_encoding=partial_for(rotary, theta=1_000_000.0, scaling=scaling),
        attention_fn=partial_for(ax_kernels.attention.blocked),
    )
    nearby = everywhere.clone(
        window=sizes.window,
        kv_cache=SlidingKVCache.Config(window=sizes.window),
        position_encoding=partial_for(rotary, theta=10_000.0),
    )

    def block(attention: Attention.Config) -> Block.Config:
        return Block.Config(
            attention=attention,
            ffn=GatedFeedForward.Config(
                hidden_dim=sizes.hidden_dim, activation=partial_for(jax.nn.gelu, approximate=True)
            ),
            norm=norm,
            output_norm=norm,
        )

    def local(num_layers: int) -> Repeat.Config:
        return Repeat.Config(num_layers=num_layers, layer=block(nearby))

    num_patterns, num_left = divmod(sizes.num_layers, NUM_LOCAL + 1)
    pattern = Stack.Config(layers={"local": local(NUM_LOCAL), "global": block(everywhere)})
    patterns = Repeat.Config(num_layers=num_patterns, layer=pattern)
    return CausalLM.Config(
        dim=sizes.dim,
        embedding=Embedding.Config(scale=sizes.dim**0.5),
        layers=Stack.Config(layers={"patterns": patterns} | ({"left": local(num_left)} if num_left else {})),
        norm=norm,
        head=None,
        cross_entropy=partial_for(ax_kernels.cross_entropy.base),
    )


def weights(sizes: Sizes) -> list[Weight]:
    """Which parameter is which tensor of a checkpoint in Hugging Face's form."""
    layers, period = range(sizes.num_layers), NUM_LOCAL + 1
    left = len(layers) - len(layers) % period
    return [
        Weight("embedding/weight", "model.embed_tokens.weight"),
        *block_weights("layers/patterns/local", [i for i in layers[:left] if (i + 1) % period]),
        *block_weights("layers/patterns/global", layers[NUM_LOCAL::period]),
        *(block_weights("layers/left", layers[left:]) if layers[left:] else []),
        Weight("norm/scale", "model.norm.weight"),
    ]


def block_weights(ours: str, layers: Sequence[int]) -> list[Weight]:
    """The part of the map for the block at ``ours``, which stands for these layers of the checkpoint."""
    theirs = "model.layers.{layer}."
    return [
        Weight(f"{ours}/attention_norm/scale", theirs + "input_layernorm.weight", layers=layers),
        Weight(f"{ours}/attention/query/weight", theirs + "self_attn.q_proj.weight", transposed, layers),
        Weight(f"{ours}/attention/query_norm/scale", theirs + "self_attn.q_norm.weight", layers=layers),
        Weight(f"{ours}/attention/key/weight", theirs + "self_attn.k_proj.weight", transposed, layers),
        Weight(f"{ours}/attention/key_norm/scale", theirs + "self_attn.k_norm.weight", layers=layers),
        Weight(f"{ours}/attention/value/weight", theirs + "self_attn.v_proj.weight", transposed, layers),
        Weight(f"{ours}/attention/output/weight", theirs + "self_attn.o_proj.weight", transposed, layers),
        Weight(f"{ours}/attention_output_norm/scale", theirs + "post_attention_layernorm.weight", layers=layers),
        Weight(f"{ours}/ffn_norm/scale", theirs + "pre_feedforward_layernorm.weight", layers=layers),
        Weight(f"{ours}/ffn/gate/weight", theirs + "mlp.gate_proj.weight", transposed, layers),
        Weight(f"{ours}/ffn/up/weight", theirs + "mlp.up_proj.weight", transposed, layers),
        Weight(f"{ours}/ffn/down/weight", theirs + "mlp.down_proj.weight", transposed, layers),
        Weight(f"{ours}/ffn_output_norm/scale", theirs + "post_feedforward_layernorm.weight", layers=layers),
    ]
