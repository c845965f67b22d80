"""Qwen3-Next: gated DeltaNet and gated attention in turn, and a mixture of many small experts in every block.

Three blocks of linear attention (arXiv:2412.06464) to one of attention with few key-value heads, whose output is gated; each
block's feed-forward is a mixture of experts with a shared one behind a gate of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import ax_kernels
import numpy as np
from ax_config import Buildable, partial_for
from ax_layers import (
    Attention,
    Block,
    CausalConv,
    CausalLM,
    ConvolvedProjection,
    Gated,
    GatedDelta,
    GatedExperts,
    GatedFeedForward,
    GatedRMSNorm,
    Linear,
    MoE,
    Repeat,
    RMSNorm,
    Stack,
    TopKRouter,
    rotary,
)
from ax_layers.protocols import SequenceLayer

from .weight_map import Weight, transposed

_Read: TypeAlias = Callable[[np.ndarray], np.ndarray]


class Sizes(NamedTuple):
    """What tells one model of the family from another."""

    num_layers: int
    dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_key_heads: int
    key_dim: int
    num_value_heads: int
    value_dim: int
    num_experts: int
    experts_per_token: int
    expert_dim: int
    shared_expert_dim: int
    linear_per_full: int = 3
    conv_width: int = 4
    rotary_fraction: float = 0.25
    rope_theta: float = 10_000_000.0
    norm_eps: float = 1e-6
    vocab_size: int = 151_936  # of the published model


SIZES = {"qwen3-next-80b-a3b": Sizes(48, 2_048, 16, 2, 256, 16, 128, 32, 128, 512, 10, 512, 512)}


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm = RMSNorm.Config(eps=sizes.norm_eps, unit_offset=True)
    convolved = ConvolvedProjection.Config(conv=CausalConv.Config(width=sizes.conv_width, use_bias=False))
    linear = GatedDelta.Config(
        num_key_heads=sizes.num_key_heads,
        key_dim=sizes.key_dim,
        num_value_heads=sizes.num_value_heads,
        value_dim=sizes.value_dim,
        query=convolved,
        key=convolved,
        value=convolved,
        norm=GatedRMSNorm.Config(gate_first=False, eps=sizes.norm_eps),
    )
    full = Attention.Config(
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        gate=Linear.Config(),
        qk_norm=norm,
        position_encoding=partial_for(rotary, theta=sizes.rope_theta, fraction=sizes.rotary_fraction),
        attention_fn=partial_for(ax_kernels.attention.blocked),
    )
    ffn = MoE.Config(
        num_experts=sizes.num_experts,
        router=TopKRouter.Config(top_k=sizes.experts_per_token),
        experts=GatedExperts.Config(hidden_dim=sizes.expert_dim),
        shared=Gated.Config(layer=GatedFeedForward.Config(hidden_dim=sizes.shared_expert_dim)),
    )

    def block(mixer: Buildable[SequenceLayer]) -> Block.Config:
        return Block.Config(attention=mixer, ffn=ffn, norm=norm)

    pattern: dict[str, Buildable[SequenceLayer]] = {
        "linear": Repeat.Config(num_layers=sizes.linear_per_full, layer=block(linear)),
        "full": block(full),
    }
    return CausalLM.Config(
        dim=sizes.dim,
        layers=Repeat.Config(
            num_layers=sizes.num_layers // (sizes.linear_per_full + 1), layer=Stack.Config(layers=pattern)
        ),
        norm=norm,
        cross_entropy=partial_for(ax_kernels.cross_entropy.base),
    )


def weights(sizes: Sizes) -> list[Weight]:
    """Where the parameters are in a checkpoint of transformers' Qwen3NextForCausalLM."""
    period = sizes.linear_per_full + 1
    linear = [i for i in range(sizes.num_layers) if (i + 1) % period]
    full = [i for i in range(sizes.num_layers) if not (i + 1) % period]
    # One matrix makes a key head's query and key, and the values and gates of the value heads that it serves; so another.
    values = sizes.num_value_heads // sizes.num_key_heads
    query, key, value, gate = _by_head(
        sizes.num_key_heads, sizes.key_dim, sizes.key_dim, values * sizes.value_dim, values * sizes.value_dim
    )
    beta, step = _by_head(sizes.num_key_heads, values, values)
    keys = sizes.num_key_heads * sizes.key_dim
    convolved = _by_head(1, keys, keys, sizes.num_value_heads * sizes.value_dim)
    full_query, full_gate = _by_head(sizes.num_heads, sizes.head_dim, sizes.head_dim)

    def block(name: str, layers: Sequence[int], mixer: list[tuple[str, str, _Read]]) -> list[Weight]:
        parts: list[tuple[str, str, _Read]] = [
            ("attention_norm/scale", "input_layernorm.weight", np.asarray),
            *mixer,
            ("ffn_norm/scale", "post_attention_layernorm.weight", np.asarray),
            ("ffn/router/weight", "mlp.gate.weight", transposed),
            ("ffn/experts/gate", "mlp.experts.gate_up_proj", _half(0)),
            ("ffn/experts/up", "mlp.experts.gate_up_proj", _half(1)),
            ("ffn/experts/down", "mlp.experts.down_proj", _experts),
            ("ffn/shared/gate/weight", "mlp.shared_expert_gate.weight", transposed),
            ("ffn/shared/layer/gate/weight", "mlp.shared_expert.gate_proj.weight", transposed),
            ("ffn/shared/layer/up/weight", "mlp.shared_expert.up_proj.weight", transposed),
            ("ffn/shared/layer/down/weight", "mlp.shared_expert.down_proj.weight", transposed),
        ]
        return [
            Weight(f"layers/{name}/{ours}", f"model.layers.{{layer}}.{theirs}", read, layers=layers)
            for ours, theirs, read in parts
        ]

    return [
        Weight("embedding/weight", "model.embed_tokens.weight"),
        *block(
            "linear",
            linear,
            [
                ("attention/query/projection/weight", "linear_attn.in_proj_qkvz.weight", query),
                ("attention/key/projection/weight", "linear_attn.in_proj_qkvz.weight", key),
                ("attention/value/projection/weight", "linear_attn.in_proj_qkvz.weight", value),
                ("attention/gate/weight", "linear_attn.in_proj_qkvz.weight", gate),
                ("attention/beta/weight", "linear_attn.in_proj_ba.weight", beta),
                ("attention/step/weight", "linear_attn.in_proj_ba.weight", step),
                *(
                    (f"attention/{name}/conv/weight", "linear_attn.conv1d.weight", part)
                    for name, part in zip(("query", "key", "value"), convolved, strict=True)
                ),
                ("attention/log_decay", "linear_attn.A_log", np.asarray),
                ("attention/step_bias", "linear_attn.dt_bias", np.asarray),
                ("attention/norm/scale", "linear_attn.norm.weight", np.asarray),
                ("attention/output/weight", "linear_attn.out_proj.weight", transposed),
            ],
        ),
        *block(
            "full",
            full,
            [
                ("attention/query/weight", "self_attn.q_proj.weight", full_query),
                ("attention/gate/weight", "self_attn.q_proj.weight", full_gate),
                ("attention/key/weight", "self_attn.k_proj.weight", transposed),
                ("attention/value/weight", "self_attn.v_proj.weight", transposed),
                ("attention/query_norm/scale", "self_attn.q_norm.weight", np.asarray),
                ("attention/key_norm/scale", "self_attn.k_norm.weight", np.asarray),
                ("attention/output/weight", "self_attn.o_proj.weight", transposed),
            ],
        ),
        Weight("norm/scale", "model.norm.weight"),
        Weight("head/weight", "lm_head.weight"),
    ]


def _by_head(num_heads: int, *sizes: int) -> list[_Read]:
    """Readers of the parts of a tensor whose rows are ``num_heads`` times the parts of these sizes; input dims first."""

    def part(start: int, end: int) -> _Read:
        return lambda x: np.moveaxis(x.reshape(num_heads, -1, *x.shape[1:])[:, start:end], (0, 1), (-2, -1))

    ends = np.cumsum(sizes).tolist()
    return [part(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _experts(x: np.ndarray) -> np.ndarray:
    """``[E, out, in] → [E, in, out]``."""
    return x.swapaxes(1, 2)


def _half(i: int) -> _Read:
    return lambda x: _experts(np.split(x, 2, axis=1)[i])
