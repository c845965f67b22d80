"""DeepSeek-V3: latent attention, and mixtures of experts that a bias balances (arXiv:2412.19437).

The first blocks have plain feed-forwards. Experts are chosen by sigmoids, from few groups; one more sees every token.
"""

from __future__ import annotations

from typing import NamedTuple

import ax_kernels
import jax
import numpy as np
from ax_config import Buildable, partial_for
from ax_layers import (
    BalancingBias,
    Block,
    CausalLM,
    GatedExperts,
    GatedFeedForward,
    LatentAttention,
    LowRankProjection,
    MoE,
    Repeat,
    RMSNorm,
    Stack,
    TopKRouter,
    best_scores_of_best_groups,
    rotary,
    yarn_magnitude,
    yarn_scaling,
)
from ax_layers.protocols import ArrayFn, SequenceLayer

from .weight_map import Weight, transposed


class Sizes(NamedTuple):
    """What tells one model of the family from another."""

    num_dense_layers: int
    num_layers: int  # the dense ones included
    dim: int
    num_heads: int
    head_dim: int
    rotary_dim: int
    value_dim: int
    query_rank: int
    latent_dim: int
    hidden_dim: int  # of the dense layers' feed-forwards
    expert_dim: int
    shared_dim: int
    num_experts: int
    experts_per_token: int
    num_groups: int
    num_kept_groups: int
    weight_scale: float = 2.5  # of the experts' weights
    balance_rate: float = 1e-3
    rope_theta: float = 10_000.0
    rope_factor: float = 40.0  # how much longer than the original ones texts may be
    original_length: int = 4_096
    norm_eps: float = 1e-6
    vocab_size: int = 129_280  # of the published model; recipes leave it to their tokenizer


SIZES = {
    "deepseek-v3": Sizes(3, 61, 7_168, 128, 128, 64, 128, 1_536, 512, 18_432, 2_048, 2_048, 256, 8, 8, 4),
}


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm = RMSNorm.Config(eps=sizes.norm_eps)
    scaling = partial_for(
        yarn_scaling, factor=sizes.rope_factor, original_length=sizes.original_length, theta=sizes.rope_theta
    )
    attention = LatentAttention.Config(
        num_heads=sizes.num_heads,
        head_dim=sizes.head_dim,
        rotary_dim=sizes.rotary_dim,
        value_dim=sizes.value_dim,
        latent_dim=sizes.latent_dim,
        # YaRN's temperature is for the whole logit, not for its rotary part.
        scale=(sizes.head_dim + sizes.rotary_dim) ** -0.5 * yarn_magnitude(sizes.rope_factor) ** 2,
        query=LowRankProjection.Config(rank=sizes.query_rank, norm=norm),
        latent_norm=norm,
        position_encoding=partial_for(rotary, theta=sizes.rope_theta, scaling=scaling),
        attention_fn=partial_for(ax_kernels.attention.blocked),
    )
    select = partial_for(best_scores_of_best_groups, num_groups=sizes.num_groups, num_kept_groups=sizes.num_kept_groups)
    moe = MoE.Config(
        num_experts=sizes.num_experts,
        router=TopKRouter.Config(
            top_k=sizes.experts_per_token,
            score=partial_for(jax.nn.sigmoid),
            scale=sizes.weight_scale,
            select=select,
            bias=BalancingBias.Config(rate=sizes.balance_rate),
        ),
        experts=GatedExperts.Config(hidden_dim=sizes.expert_dim),
        shared=GatedFeedForward.Config(hidden_dim=sizes.shared_dim),
    )

    def blocks(num_layers: int, ffn: Buildable[ArrayFn]) -> Repeat.Config:
        return Repeat.Config(num_layers=num_layers, layer=Block.Config(attention=attention, ffn=ffn, norm=norm))

    layers: dict[str, Buildable[SequenceLayer]] = {
        "dense": blocks(sizes.num_dense_layers, GatedFeedForward.Config(hidden_dim=sizes.hidden_dim)),
        "moe": blocks(sizes.num_layers - sizes.num_dense_layers, moe),
    }
    return CausalLM.Config(
        dim=sizes.dim,
        layers=Stack.Config(layers=layers),
        norm=norm,
        cross_entropy=partial_for(ax_kernels.cross_entropy.base),
    )


def weights(sizes: Sizes) -> list[Weight]:
    """Which parameter is which tensor of a checkpoint in Hugging Face's form."""
    layer = "model.layers.{layer}"
    dense, moe = range(sizes.num_dense_layers), range(sizes.num_dense_layers, sizes.num_layers)
    experts, expert = range(sizes.num_experts), layer + ".mlp.experts.{expert}"

    def query(tensor: np.ndarray) -> np.ndarray:
        """``[N · (H + R), rank]``: the rotary part is the end of each head."""
        heads = tensor.reshape(sizes.num_heads, -1, tensor.shape[-1])
        return np.moveaxis(in_halves(heads, sizes.rotary_dim), -1, 0)

    def down(tensor: np.ndarray) -> np.ndarray:
        return in_halves(tensor, sizes.rotary_dim).T

    def attention(ours: str, layers: range) -> list[Weight]:
        return [
            Weight(f"{ours}/attention_norm/scale", f"{layer}.input_layernorm.weight", layers=layers),
            Weight(f"{ours}/attention/query/down/weight", f"{layer}.self_attn.q_a_proj.weight", transposed, layers),
            Weight(f"{ours}/attention/query/norm/scale", f"{layer}.self_attn.q_a_layernorm.weight", layers=layers),
            Weight(f"{ours}/attention/query/up/weight", f"{layer}.self_attn.q_b_proj.weight", query, layers),
            Weight(f"{ours}/attention/down/weight", f"{layer}.self_attn.kv_a_proj_with_mqa.weight", down, layers),
            Weight(f"{ours}/attention/latent_norm/scale", f"{layer}.self_attn.kv_a_layernorm.weight", layers=layers),
            Weight(f"{ours}/attention/up/weight", f"{layer}.self_attn.kv_b_proj.weight", transposed, layers),
            Weight(f"{ours}/attention/output/weight", f"{layer}.self_attn.o_proj.weight", transposed, layers),
            Weight(f"{ours}/ffn_norm/scale", f"{layer}.post_attention_layernorm.weight", layers=layers),
        ]

    def feed_forward(ours: str, theirs: str, layers: range) -> list[Weight]:
        return [
            Weight(f"{ours}/{name}/weight", f"{theirs}.{name}_proj.weight", transposed, layers)
            for name in ("gate", "up", "down")
        ]

    return [
        Weight("embedding/weight", "model.embed_tokens.weight"),
        *attention("layers/dense", dense),
        *feed_forward("layers/dense/ffn", f"{layer}.mlp", dense),
        *attention("layers/moe", moe),
        Weight("layers/moe/ffn/router/weight", f"{layer}.mlp.gate.weight", transposed, moe),
        Weight("layers/moe/ffn/router/bias/bias", f"{layer}.mlp.gate.e_score_correction_bias", layers=moe),
        *(
            Weight(f"layers/moe/ffn/experts/{name}", f"{expert}.{name}_proj.weight", transposed, moe, experts)
            for name in ("gate", "up", "down")
        ),
        *feed_forward("layers/moe/ffn/shared", f"{layer}.mlp.shared_experts", moe),
        Weight("norm/scale", "model.norm.weight"),
        Weight("head/weight", "lm_head.weight"),
    ]


def in_halves(tensor: np.ndarray, rotary_dim: int) -> np.ndarray:
    """The last ``rotary_dim`` rows of ``[…, rows, columns]`` from pairs of neighbours to pairs half of them apart."""
    plain, rotary = tensor[..., :-rotary_dim, :], tensor[..., -rotary_dim:, :]
    return np.concatenate([plain, rotary[..., 0::2, :], rotary[..., 1::2, :]], axis=-2)
