"""GPT-2: layer norms, learnt positions, biases everywhere (Radford et al. 2019)."""

from __future__ import annotations

from typing import NamedTuple

import ax_kernels
import jax
import numpy as np
from ax_config import partial_for
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    Repeat,
    no_positions,
)

from .weight_map import Weight


class Sizes(NamedTuple):
    """What tells one model of the family from another."""

    num_layers: int
    dim: int
    num_heads: int
    head_dim: int = 64
    max_length: int = 1_024
    vocab_size: int = 50_257


SIZES = {
    "gpt2": Sizes(12, 768, 12),
    "gpt2-medium": Sizes(24, 1_024, 16),
    "gpt2-large": Sizes(36, 1_280, 20),
    "gpt2-xl": Sizes(48, 1_600, 25),
}


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm, linear = LayerNorm.Config(eps=1e-5), Linear.Config(use_bias=True)
    block = Block.Config(
        attention=Attention.Config(
            num_heads=sizes.num_heads,
            head_dim=sizes.head_dim,
            query=linear,
            key=linear,
            value=linear,
            output=linear,
            position_encoding=partial_for(no_positions),
            attention_fn=partial_for(ax_kernels.attention.blocked),
        ),
        ffn=FeedForward.Config(
            hidden_dim=4 * sizes.dim,
            activation=partial_for(jax.nn.gelu, approximate=True),
            up=linear,
            down=linear,
        ),
        norm=norm,
    )
    return CausalLM.Config(
        dim=sizes.dim,
        layers=Repeat.Config(num_layers=sizes.num_layers, layer=block),
        position_embedding=LearnedPositions.Config(max_length=sizes.max_length),
        norm=norm,
        head=None,
        cross_entropy=partial_for(ax_kernels.cross_entropy.base),
    )


def query_of(tensor: np.ndarray) -> np.ndarray:
    """The first third of the last dim: queries, keys and values are one matrix in the checkpoint."""
    return np.split(tensor, 3, axis=-1)[0]


def key_of(tensor: np.ndarray) -> np.ndarray:
    """The second."""
    return np.split(tensor, 3, axis=-1)[1]


def value_of(tensor: np.ndarray) -> np.ndarray:
    """The third."""
    return np.split(tensor, 3, axis=-1)[2]


def weights(sizes: Sizes) -> list[Weight]:
    """Which parameter is which tensor of a checkpoint in Hugging Face's form, whose matrices are ``[in, out]`` here."""
    layers, block = range(sizes.num_layers), "transformer.h.{layer}."
    return [
        Weight("embedding/weight", "transformer.wte.weight"),
        Weight("position_embedding/weight", "transformer.wpe.weight"),
        Weight("layers/attention_norm/scale", block + "ln_1.weight", layers=layers),
        Weight("layers/attention_norm/bias", block + "ln_1.bias", layers=layers),
        Weight("layers/attention/query/weight", block + "attn.c_attn.weight", query_of, layers),
        Weight("layers/attention/query/bias", block + "attn.c_attn.bias", query_of, layers),
        Weight("layers/attention/key/weight", block + "attn.c_attn.weight", key_of, layers),
        Weight("layers/attention/key/bias", block + "attn.c_attn.bias", key_of, layers),
        Weight("layers/attention/value/weight", block + "attn.c_attn.weight", value_of, layers),
        Weight("layers/attention/value/bias", block + "attn.c_attn.bias", value_of, layers),
        Weight("layers/attention/output/weight", block + "attn.c_proj.weight", layers=layers),
        Weight("layers/attention/output/bias", block + "attn.c_proj.bias", layers=layers),
        Weight("layers/ffn_norm/scale", block + "ln_2.weight", layers=layers),
        Weight("layers/ffn_norm/bias", block + "ln_2.bias", layers=layers),
        Weight("layers/ffn/up/weight", block + "mlp.c_fc.weight", layers=layers),
        Weight("layers/ffn/up/bias", block + "mlp.c_fc.bias", layers=layers),
        Weight("layers/ffn/down/weight", block + "mlp.c_proj.weight", layers=layers),
        Weight("layers/ffn/down/bias", block + "mlp.c_proj.bias", layers=layers),
        Weight("norm/scale", "transformer.ln_f.weight"),
        Weight("norm/bias", "transformer.ln_f.bias"),
    ]
