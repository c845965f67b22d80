"""The smallest model, data and training that have every part: what the seams are tried with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import jax
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pyarrow  # type: ignore[import-untyped]  # it ships no types
import pyarrow.parquet  # type: ignore[import-untyped]
import tokenizers
from ax_config import Buildable, config_for, partial_for, replace, role
from ax_input import (
    ByteTokenizer,
    MemoryDocuments,
    Mixture,
    Packing,
    Phase,
    PreparedCorpus,
    TextCorpus,
    TextEncoder,
    TextInput,
    prepare_corpus,
)
from ax_layers import (
    Attention,
    BalancingBias,
    Block,
    CausalLM,
    FeedForward,
    GatedExperts,
    GatedFeedForward,
    LayerNorm,
    Module,
    ModuleDecoder,
    ModuleModel,
    MoE,
    NoisyGating,
    ParamSpec,
    Repeat,
    RMSNorm,
    Stack,
    TopKRouter,
    alibi,
    as_decoder,
    as_model,
    initializers,
    load_balance_loss,
    masks,
)
from ax_layers.protocols import ArrayTree
from ax_recipes import Experiment
from ax_trainer import Learner, Trainer

BATCH_SIZE, SEQ_LENGTH = 8, 16
VOCAB_SIZE = 264
"""The bytes, the end of a document, and up to a multiple of eight, so that a mesh can split it."""

CORPUS = Path(json.__file__).parent
"""A folder with a few files of text, on every machine."""

TEXT = (CORPUS / "decoder.py").read_bytes()
"""One of the files."""

PARAM_SPEC = ParamSpec((16, 32), np.dtype(np.float32), ("embed", "mlp"), initializers.zeros)
"""Of some parameter."""


def attention() -> Attention.Config:
    """Eight heads."""
    return Attention.Config(num_heads=8, head_dim=4)


def block() -> Block.Config:
    """Attention and feed-forward."""
    return Block.Config(attention=attention(), ffn=GatedFeedForward.Config(hidden_dim=32))


def hybrid() -> Repeat.Config:
    """Twice: two layers that look near, and one that sees all; scans within a scan."""
    near = attention().clone(window=4, num_kv_heads=4, qk_norm=RMSNorm.Config(unit_offset=True))
    local = Block.Config(attention=near, ffn=FeedForward.Config(hidden_dim=32), norm=LayerNorm.Config())
    return Repeat.Config(
        num_layers=2,
        layer=Stack.Config(layers={"local": Repeat.Config(num_layers=2, layer=local), "global": block()}),
    )


DENSE_LAYERS: Mapping[str, Buildable[Module]] = {
    "attention with every option": attention().clone(
        num_kv_heads=4,
        mask=partial_for(masks.chunked, size=4),
        bias=partial_for(alibi),
        sinks=partial_for(initializers.normal, std=1.0),
    ),
    "hybrid": hybrid(),
}
"""To be built with a width."""


def lm() -> CausalLM.Config:
    """A causal language model of two layers whose every dim eight devices can split; the vocabulary is left open."""
    return CausalLM.Config(dim=16, layers=Repeat.Config(num_layers=2, layer=block()))


def lm_model() -> ModuleModel:
    """The model, for a training loop."""
    return as_model(lm().build(vocab_size=VOCAB_SIZE))


def moe(*, noise: bool = True) -> MoE.Config:
    """Eight experts, in balance by a loss and by a state."""
    router = TopKRouter.Config(
        top_k=2,
        noise=NoisyGating.Config() if noise else None,
        bias=BalancingBias.Config(),
        losses={"load_balance": partial_for(load_balance_loss)},
    )
    return MoE.Config(num_experts=8, router=router, experts=GatedExperts.Config(hidden_dim=32))


def moe_model() -> ModuleModel:
    """The model with experts in the place of its feed-forwards, for a training loop."""
    return as_model(replace(lm(), role("ffn"), moe()).build(vocab_size=VOCAB_SIZE))


def balanced_model() -> ModuleModel:
    """The same without noise, so that the same rows give the same loss."""
    return as_model(replace(lm(), role("ffn"), moe(noise=False)).build(vocab_size=VOCAB_SIZE))


def lm_decoder() -> tuple[ModuleDecoder, ArrayTree]:
    """The model, for sampling, and parameters for it."""
    module = lm().build(vocab_size=VOCAB_SIZE)
    return as_decoder(module), module.init(jax.random.key(0))


@cache
def pipeline() -> TextInput:
    """The corpus as rows of bytes, read once."""
    return text().build()


def text() -> TextInput.Config:
    """How to read the corpus."""
    return TextInput.Config(paths=(str(CORPUS),), seq_length=SEQ_LENGTH, batch_size=BATCH_SIZE, holdout_fraction=0.3)


def mixture() -> Mixture.Config:
    """The corpus and one of its files, three to one, then one to one; packed, with segments."""
    return Mixture.Config(
        sources={
            "corpus": TextCorpus.Config(paths=(str(CORPUS),), holdout_fraction=0.3),
            "file": TextCorpus.Config(paths=(str(CORPUS / "decoder.py"),), holdout_fraction=0.0),
        },
        phases=(
            Phase.Config(weights={"corpus": 3, "file": 1}),
            Phase.Config(begin=2, weights={"corpus": 1, "file": 1}),
        ),
        packing=Packing.Config(mode="best_fit", segments=True),
        seq_length=SEQ_LENGTH,
        batch_size=BATCH_SIZE,
    )


def documents() -> MemoryDocuments:
    """The corpus as tokens."""
    return TextCorpus.Config(paths=(str(CORPUS),), holdout_fraction=0.0).build().train


def write_tokenizer(folder: Path) -> Path:
    """A tokenizer of bytes as Hugging Face keeps one, whose one special token ends a document."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    return folder


def prepare_text(folder: Path) -> PreparedCorpus:
    """The corpus as tokens on a disk."""
    tokenizer = ByteTokenizer()
    encoder = TextEncoder.Config().build(tokenizer=tokenizer)
    return prepare_corpus([CORPUS], folder / "prepared", tokenizer=tokenizer, encoder=encoder)


def examples() -> list[dict[str, np.ndarray]]:
    """Arrays of one shape, twenty times."""
    return [{"inputs": np.full((2, 3), i, np.float32), "targets": np.asarray(i % 4, np.int32)} for i in range(20)]


def batch() -> dict[str, np.ndarray]:
    """The first batch of the corpus."""
    return {name: np.array(array) for name, array in next(pipeline().train()).items()}


def learner() -> Learner.Config:
    """AdamW, fast enough to learn something in ten steps."""
    return Learner.Config(schedule=config_for(optax.constant_schedule)(3e-2), clip_norm=1.0, weight_decay=0.1)


def training() -> Trainer.Config:
    """A training; of how many steps is left open."""
    return Trainer.Config(optimizer=learner())


def experiment() -> Experiment.Config:
    """All of it in one tree, as a recipe would write it."""
    return Experiment.Config(
        name="small",
        num_steps=5,
        model=lm(),
        input=text(),
        trainer=training(),
        vocab_size=VOCAB_SIZE,
        max_validation_batches=2,
    )


def write_text(folder: Path) -> Path:
    """A text file."""
    file = folder / "some.txt"
    file.write_bytes(TEXT)
    return file


def write_jsonl(folder: Path) -> Path:
    """A file of JSON lines."""
    file = folder / "some.jsonl"
    file.write_text("".join(json.dumps({"text": line}) + "\n" for line in TEXT.decode().splitlines() if line))
    return file


def write_parquet(folder: Path) -> Path:
    """A Parquet file."""
    file = folder / "some.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXT.decode().split()}), file, row_group_size=100)
    return file
