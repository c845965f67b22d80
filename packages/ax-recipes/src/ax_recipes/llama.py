"""The Llama family: pre-norm decoders with rotary positions, RMSNorm and SwiGLU (Touvron et al. 2023, arXiv:2302.13971).

``model`` puts a model together from its sizes; each recipe below reads top to bottom like the run it describes.
"""

from __future__ import annotations

from typing import NamedTuple

import ax_kernels
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import config_for, partial_for
from ax_input import TextInput
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    GatedFeedForward,
    Head,
    Repeat,
    RMSNorm,
    llama3_scaling,
    rotary,
)
from ax_mesh import MeshRules
from ax_trainer import Learner, Trainer

from . import mesh_rules
from ._experiment import Experiment
from .weight_map import Weight, transposed


class Sizes(NamedTuple):
    """What tells one model of the family from another."""

    num_layers: int
    dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_dim: int
    rope_theta: float = 10_000.0
    rope_factor: float | None = None  # how much longer than 8,192 positions texts may be (Llama 3.1)
    norm_eps: float = 1e-5
    tied: bool = False
    vocab_size: int = 32_000  # of the published model; recipes leave it to their tokenizer


SIZES = {
    "tiny": Sizes(6, 160, 5, 5, 32, 432, tied=True),
    "60m": Sizes(8, 512, 8, 8, 64, 1_408),
    "smollm2-135m": Sizes(30, 576, 9, 3, 64, 1_536, rope_theta=100_000.0, tied=True, vocab_size=49_152),
    "llama-2-7b": Sizes(32, 4_096, 32, 32, 128, 11_008),
    "llama-2-13b": Sizes(40, 5_120, 40, 40, 128, 13_824),
    "llama-2-70b": Sizes(80, 8_192, 64, 8, 128, 28_672),
    "llama-3-8b": Sizes(32, 4_096, 32, 8, 128, 14_336, 500_000.0, vocab_size=128_256),
    "llama-3-70b": Sizes(80, 8_192, 64, 8, 128, 28_672, 500_000.0, vocab_size=128_256),
    "llama-3.1-8b": Sizes(32, 4_096, 32, 8, 128, 14_336, 500_000.0, 8.0, vocab_size=128_256),
    "llama-3.1-70b": Sizes(80, 8_192, 64, 8, 128, 28_672, 500_000.0, 8.0, vocab_size=128_256),
    "llama-3.1-405b": Sizes(126, 16_384, 128, 8, 128, 53_248, 500_000.0, 8.0, vocab_size=128_256),
    "llama-3.2-1b": Sizes(16, 2_048, 32, 8, 64, 8_192, 500_000.0, 32.0, tied=True, vocab_size=128_256),
    "llama-3.2-3b": Sizes(28, 3_072, 24, 8, 128, 8_192, 500_000.0, 32.0, tied=True, vocab_size=128_256),
}


def model(sizes: Sizes) -> CausalLM.Config:
    """The model of these sizes; the vocabulary is left open."""
    norm = RMSNorm.Config(eps=sizes.norm_eps)
    scaling = None if sizes.rope_factor is None else partial_for(llama3_scaling, factor=sizes.rope_factor)
    block = Block.Config(
        attention=Attention.Config(
            num_heads=sizes.num_heads,
            num_kv_heads=sizes.num_kv_heads,
            head_dim=sizes.head_dim,
            position_encoding=partial_for(rotary, theta=sizes.rope_theta, scaling=scaling),
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
        Weight("layers/attention/key/weight", "model.layers.{layer}.self_attn.k_proj.weight", transposed, layers),
        Weight("layers/attention/value/weight", "model.layers.{layer}.self_attn.v_proj.weight", transposed, layers),
        Weight("layers/attention/output/weight", "model.layers.{layer}.self_attn.o_proj.weight", transposed, layers),
        Weight("layers/ffn_norm/scale", "model.layers.{layer}.post_attention_layernorm.weight", layers=layers),
        Weight("layers/ffn/gate/weight", "model.layers.{layer}.mlp.gate_proj.weight", transposed, layers),
        Weight("layers/ffn/up/weight", "model.layers.{layer}.mlp.up_proj.weight", transposed, layers),
        Weight("layers/ffn/down/weight", "model.layers.{layer}.mlp.down_proj.weight", transposed, layers),
        Weight("norm/scale", "model.norm.weight"),
        *([] if sizes.tied else [Weight("head/weight", "lm_head.weight")]),
    ]


def adamw(*, num_steps: int, learning_rate: float, warmup_steps: int, weight_decay: float = 0.1) -> Learner.Config:
    """AdamW with β 0.9/0.95, clipped to norm 1, warmed up, then down to a tenth along a cosine."""
    return Learner.Config(
        schedule=config_for(optax.warmup_cosine_decay_schedule)(
            init_value=0.0,
            peak_value=learning_rate,
            warmup_steps=warmup_steps,
            decay_steps=num_steps,
            end_value=learning_rate / 10,
        ),
        clip_norm=1.0,
        weight_decay=weight_decay,
    )


def tiny(*, num_steps: int = 800) -> Experiment.Config:
    """A 1.9 M parameter model on bytes, for about six minutes on two CPU cores; by default on Python's own library."""
    return Experiment.Config(
        name="tiny",
        num_steps=num_steps,
        model=model(SIZES["tiny"]),
        input=TextInput.Config(seq_length=256, batch_size=8),
        trainer=Trainer.Config(
            optimizer=adamw(num_steps=num_steps, learning_rate=4e-3, warmup_steps=min(50, num_steps // 10)),
            evaluate_every=200,
            checkpoint_every=100,
        ),
        max_validation_batches=16,
        mesh_rules=mesh_rules.tiny(),
    )


def llama_60m(*, num_steps: int = 10_000) -> Experiment.Config:
    """The 60 M parameter model of the step benchmark, on bytes."""
    return Experiment.Config(
        name="llama-60m",
        num_steps=num_steps,
        model=model(SIZES["60m"]),
        input=TextInput.Config(seq_length=256, batch_size=8),
        trainer=Trainer.Config(
            optimizer=adamw(num_steps=num_steps, learning_rate=6e-4, warmup_steps=min(200, num_steps // 10)),
            evaluate_every=500,
            checkpoint_every=500,
        ),
        max_validation_batches=32,
        mesh_rules=mesh_rules.small(),
    )


def smollm2_135m(*, num_steps: int = 10_000) -> Experiment.Config:
    """The architecture of SmolLM2-135M, on bytes: a model to fill one accelerator with."""
    return Experiment.Config(
        name="smollm2-135m",
        num_steps=num_steps,
        model=model(SIZES["smollm2-135m"]),
        input=TextInput.Config(seq_length=1_024, batch_size=32),
        trainer=Trainer.Config(
            optimizer=adamw(num_steps=num_steps, learning_rate=1e-3, warmup_steps=min(500, num_steps // 10)),
            evaluate_every=500,
            checkpoint_every=500,
        ),
        max_validation_batches=32,
        mesh_rules=mesh_rules.small(),
    )


def llama_2_7b(*, num_steps: int = 500_000) -> Experiment.Config:
    """Llama 2 with seven billion parameters, four million tokens a step, on bytes; for hundreds of chips."""
    return _pretraining("llama-2-7b", num_steps=num_steps, learning_rate=3e-4, mesh_rules=mesh_rules.llama_2_7b())


def llama_2_70b(*, num_steps: int = 500_000) -> Experiment.Config:
    """Llama 2 with seventy billion parameters, four million tokens a step, on bytes; for hundreds of chips."""
    return _pretraining("llama-2-70b", num_steps=num_steps, learning_rate=1.5e-4, mesh_rules=mesh_rules.llama_2_70b())


def _pretraining(name: str, *, num_steps: int, learning_rate: float, mesh_rules: MeshRules) -> Experiment.Config:
    """As Touvron et al. 2023 (arXiv:2307.09288, §2.2) trained: 4 M tokens a step, a warm-up of 2,000 steps."""
    sizes = SIZES[name]
    return Experiment.Config(
        name=name,
        num_steps=num_steps,
        model=model(sizes),
        vocab_size=sizes.vocab_size,
        input=TextInput.Config(seq_length=4_096, batch_size=1_024),
        trainer=Trainer.Config(
            optimizer=adamw(num_steps=num_steps, learning_rate=learning_rate, warmup_steps=min(2_000, num_steps // 10)),
            evaluate_every=1_000,
            checkpoint_every=1_000,
        ),
        max_validation_batches=8,
        mesh_rules=mesh_rules,
    )
