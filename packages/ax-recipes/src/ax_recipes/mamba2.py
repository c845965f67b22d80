"""Mamba-2: stacks of state-space layers, without attention or feed-forwards (Dao and Gu 2024, arXiv:2405.21060)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import ax_kernels
import numpy as np
from ax_config import partial_for
from ax_layers import CausalConv, CausalLM, ConvolvedProjection, GatedRMSNorm, Head, Mamba2, Repeat, Residual, RMSNorm

from .weight_map import Weight, transposed


class Sizes(NamedTuple):
    """What tells one model of the family from another."""

    num_layers: int
    dim: int
    num_heads: int
    head_dim: int = 64
    state_dim: int = 128
    num_groups: int = 1
    conv_width: int = 4
    norm_eps: float = 1e-5
    tied: bool = True
    vocab_size: int = 50_288  # of the published models


SIZES = {
    "mamba2-130m": Sizes(24, 768, 24),
    "mamba2-370m": Sizes(48, 1_024, 32),
    "mamba2-780m": Sizes(48, 1_536, 48),
    "mamba2-1.3b": Sizes(48, 2_048, 64),
    "mamba2-2.7b": Sizes(64, 2_560, 80),
}
"""As published under state-spaces/."""


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm = RMSNorm.Config(eps=sizes.norm_eps)
    convolved = ConvolvedProjection.Config(conv=CausalConv.Config(width=sizes.conv_width))
    mixer = Mamba2.Config(
        num_heads=sizes.num_heads,
        head_dim=sizes.head_dim,
        state_dim=sizes.state_dim,
        num_groups=sizes.num_groups,
        query=convolved,
        key=convolved,
        value=convolved,
        norm=GatedRMSNorm.Config(num_groups=sizes.num_groups, eps=sizes.norm_eps),
    )
    return CausalLM.Config(
        dim=sizes.dim,
        layers=Repeat.Config(num_layers=sizes.num_layers, layer=Residual.Config(layer=mixer, norm=norm)),
        norm=norm,
        head=None if sizes.tied else Head.Config(),
        cross_entropy=partial_for(ax_kernels.cross_entropy.base),
    )


def weights(sizes: Sizes) -> list[Weight]:
    """Where the parameters are in a checkpoint of transformers' Mamba2ForCausalLM."""
    values, keys = sizes.num_heads * sizes.head_dim, sizes.num_groups * sizes.state_dim
    # One matrix makes them all, one below the other, and one convolution works on those that have one.
    gate, value, key, query, step = _parts(values, values, keys, keys, sizes.num_heads)
    convolved = dict(zip(("value", "key", "query"), _parts(values, keys, keys), strict=True))
    projected = {
        "gate": gate,
        "value/projection": value,
        "key/projection": key,
        "query/projection": query,
        "step": step,
    }

    def layer(ours: str, theirs: str, read: Callable[[np.ndarray], np.ndarray] = np.asarray) -> Weight:
        return Weight(f"layers/{ours}", f"backbone.layers.{{layer}}.{theirs}", read, layers=range(sizes.num_layers))

    return [
        Weight("embedding/weight", "backbone.embeddings.weight"),
        layer("norm/scale", "norm.weight"),
        *(layer(f"layer/{name}/weight", "mixer.in_proj.weight", part) for name, part in projected.items()),
        *(layer(f"layer/{name}/conv/weight", "mixer.conv1d.weight", part) for name, part in convolved.items()),
        *(layer(f"layer/{name}/conv/bias", "mixer.conv1d.bias", part) for name, part in convolved.items()),
        layer("layer/log_decay", "mixer.A_log"),
        layer("layer/step_bias", "mixer.dt_bias"),
        layer("layer/skip", "mixer.D"),
        layer("layer/norm/scale", "mixer.norm.weight"),
        layer("layer/output/weight", "mixer.out_proj.weight", transposed),
        Weight("norm/scale", "backbone.norm_f.weight"),
        *([] if sizes.tied else [Weight("head/weight", "lm_head.weight")]),
    ]


def _parts(*sizes: int) -> list[Callable[[np.ndarray], np.ndarray]]:
    """Readers of parts of a tensor ``[sum(sizes), …]``, each turned to ``[…, size]``."""
    ends = np.cumsum(sizes)

    def part(start: int, end: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda tensor: tensor[start:end].T

    return [part(int(end) - size, int(end)) for size, end in zip(sizes, ends, strict=True)]
