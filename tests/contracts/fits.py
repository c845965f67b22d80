"""Who fits what: each Protocol of each package, and everything that is known to satisfy it.

This is the table of the seams, in the order of the packages that own them. mypy --strict checks it entry by entry: a
provider that doesn't fit its Protocol is an error at its line. The tests run the owner's kit on every entry, or make the
call where a seam is no more than one, so each is a proof of the types and of what types can't say. The ``strangers`` stand
for everybody else: plain Python and JAX, or a third party's class behind a small adapter.

An entry is a function that makes the provider, of an empty folder where it needs one; or the provider, where that is a
function or a plain value.
"""

from __future__ import annotations

import string
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import ax_kernels
import grain  # type: ignore[import-untyped]  # it ships no types
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import config_for, partial_for
from ax_config.protocols import Buildable
from ax_inference import Sampler
from ax_inference.protocols import Cache, Decoder
from ax_input import (
    ByteTokenizer,
    ChatEncoder,
    Concatenated,
    ExampleStream,
    FillInTheMiddle,
    HuggingFaceTokenizer,
    JsonlSource,
    MemoryDocuments,
    MemorySource,
    ParquetSource,
    PreferenceEncoder,
    PreparedCorpus,
    PreparedText,
    TextCorpus,
    TextEncoder,
    TextSource,
    by_length,
    encode_records,
    subsample,
)
from ax_input.protocols import (
    Corpus,
    Encoder,
    Source,
    SupportsFingerprint,
    SupportsMarks,
    SupportsParts,
    TokenDocuments,
    Tokenizer,
)
from ax_input.testing import MakeStream
from ax_layers import (
    AllToAll,
    BalancingBias,
    Capacity,
    CausalConv,
    ConvolvedProjection,
    DelayedRange,
    DenseKVCache,
    Distillation,
    Dropless,
    Dropout,
    Embedding,
    ExpertChoiceRouter,
    FeedForward,
    FurtherTokens,
    FusedQKV,
    Gated,
    GatedDelta,
    GatedExperts,
    GatedFeedForward,
    GatedRMSNorm,
    Head,
    Identity,
    Int8Linear,
    LatentAttention,
    LayerNorm,
    LearnedPositions,
    Linear,
    LoRA,
    LowRankProjection,
    Mamba2,
    NoisyGating,
    NormalisedProjection,
    ParallelBlock,
    PartialDotProduct,
    QuantisedLinear,
    Remat,
    Repeat,
    Residual,
    RMSNorm,
    SinusoidalPositions,
    SlidingKVCache,
    Stack,
    TopKRouter,
    Unsharded,
    Zigzag,
    alibi,
    best_scores,
    best_scores_of_best_groups,
    channel_range,
    cross_entropy,
    delta_rule,
    dot_product_attention,
    grouped_matmul,
    initializers,
    linear_scaling,
    llama3_scaling,
    load_balance_loss,
    masks,
    no_positions,
    ntk_scaling,
    padded_exchange,
    pipelined,
    ragged_exchange,
    regularised_cross_entropy,
    relu_squared,
    rotary,
    router_z_loss,
    ssd,
    tensor_range,
    yarn_scaling,
)
from ax_layers import Pipeline as LayerPipeline
from ax_layers.protocols import (
    ArrayFn,
    AttentionBias,
    AttentionFn,
    AttentionMask,
    CrossEntropyFn,
    DeltaRuleFn,
    Dispatch,
    Exchange,
    Experts,
    FrequencyScaling,
    FurtherPredictions,
    GatedArrayFn,
    GroupedMatmul,
    Initializer,
    KVCache,
    LanguageModel,
    LogitNoise,
    OutputHead,
    PartialAttention,
    PositionEmbedding,
    PositionEncoding,
    Projection,
    QKVProjection,
    RangeFn,
    Router,
    RouterLoss,
    SelectFn,
    SelectionBias,
    SequenceConv,
    SequenceLayer,
    SequenceProjection,
    Sharder,
    State,
    StateSpaceFn,
    SupportsAttentionOptions,
    SupportsPaths,
    SupportsPiecewiseLoss,
    SupportsWindow,
    TokenEmbedding,
)
from ax_mesh import Mesh
from ax_mesh.protocols import HasAxes
from ax_recipes.protocols import (
    Loop,
    Outcome,
    Pipeline,
    Placement,
    StateStore,
    SupportsAbstractState,
    SupportsBatchShapes,
    SupportsDescription,
    SupportsLedger,
    SupportsLowering,
)
from ax_runtime.agent import JsonlSink, StopOnSignals
from ax_runtime.checkpoint import OrbaxCheckpointer
from ax_runtime.mlflow import MlflowSink
from ax_runtime.prometheus import PrometheusSink
from ax_runtime.protocols import Job, Stop
from ax_runtime.tensorboard import TensorBoardSink
from ax_runtime.testing import StopAfter
from ax_runtime.wandb import WandbSink
from ax_trainer import (
    LossScale,
    ParameterAverage,
    ProfilerWindows,
    Result,
    ScheduleFree,
    SkipNonFinite,
    SkipSpikes,
)
from ax_trainer.protocols import (
    Averaging,
    BatchSource,
    Checkpointer,
    Hook,
    MetricSink,
    Model,
    Optimizer,
    Params,
    Partitioner,
    SkipRule,
    Spec,
    StopSignal,
    SupportsBatchStatistics,
    SupportsCompilerOptions,
    SupportsEpochs,
    SupportsFanIn,
    SupportsFirstValues,
    SupportsFreezing,
    SupportsLastStep,
    SupportsObservation,
    SupportsOptimizerShardings,
    SupportsOrigins,
    SupportsSpecs,
    SupportsStartAndEnd,
    SupportsStateUpdates,
    SupportsTrainable,
    SupportsWeightDecay,
    Updates,
)
from ax_trainer.testing import BigramModel, SingleDevice

from . import small
from .strangers.bare_orbax import BareOrbax
from .strangers.characters import Characters
from .strangers.counting_job import CountingJob
from .strangers.deadline import Deadline
from .strangers.equinox_model import EquinoxModel
from .strangers.flax_model import FlaxModel
from .strangers.grain_batches import GrainBatches
from .strangers.length_encoder import LengthEncoder
from .strangers.lines import Lines
from .strangers.list_sink import ListSink
from .strangers.loader_batches import loader_batches
from .strangers.masked_matmul import masked_matmul
from .strangers.named_shardings import NamedShardings
from .strangers.optax_cross_entropy import optax_cross_entropy
from .strangers.optax_loop import Ending, OptaxLoop
from .strangers.plain_attention import plain_attention
from .strangers.random_windows import RandomWindows
from .strangers.ready import Ready
from .strangers.recurrent_decoder import RecurrentDecoder
from .strangers.sliding_cache import SlidingCache
from .strangers.step_timer import StepTimer

T = TypeVar("T")
Weights = TypeVar("Weights")
Built: TypeAlias = Mapping[str, Callable[[], T]]
Stored: TypeAlias = Mapping[str, Callable[[Path], T]]

# ax-config

BUILDABLE: Mapping[str, Buildable[object]] = {
    "ax_layers.CausalLM.Config": small.lm(),
    "ax_mesh.Mesh.Config": Mesh.Config(),
    "ax_input.TextInput.Config": small.text(),
    "ax_trainer.Trainer.Config": small.training(),
    "ax_trainer.Learner.Config": small.learner(),
    "ax_runtime.checkpoint.OrbaxCheckpointer.Config": OrbaxCheckpointer.Config(),
    "ax_inference.Sampler.Config": Sampler.Config(temperature=0.8),
    "ax_recipes.Experiment.Config": small.experiment(),
    "anybody's function, to be called": config_for(optax.adamw)(1e-3),
    "anybody's function, to be passed on": partial_for(jax.nn.gelu, approximate=False),
    "strangers.Ready": Ready(StopOnSignals()),
}

# ax-inference


def _decoder(
    make: Callable[[], tuple[Decoder[Weights, Cache], Weights]], /
) -> Callable[[], tuple[Decoder[Any, Any], Any]]:
    """``make``, once mypy has found the types of parameters and cache that its decoder takes, and that these are such."""
    return make


DECODERS: Built[tuple[Decoder[Any, Any], Any]] = {
    "ax_layers.as_decoder(CausalLM)": _decoder(small.lm_decoder),
    "strangers.RecurrentDecoder": _decoder(lambda: RecurrentDecoder(50, 8).with_params(jax.random.key(0))),
}
"""With parameters."""

# ax-input

SOURCES: Stored[Source[object]] = {
    "ax_input.TextSource": lambda folder: TextSource(small.write_text(folder)),
    "ax_input.JsonlSource": lambda folder: JsonlSource(small.write_jsonl(folder)),
    "ax_input.ParquetSource": lambda folder: ParquetSource(small.write_parquet(folder)),
    "ax_input.Rows": lambda _: small.pipeline().train_rows,
    "ax_input.EvaluationBatches": lambda _: small.pipeline().validation(),
    "ax_input.MemoryDocuments": lambda _: small.documents(),
    "ax_input.MemorySource": lambda _: MemorySource(["some", "text"]),
    "a list": lambda _: ["some", "text"],
    "an array": lambda _: np.arange(6).reshape(3, 2),
    "grain.MapDataset": lambda _: grain.MapDataset.range(5),
}

TOKENIZERS: Built[Tokenizer] = {
    "ax_input.ByteTokenizer": ByteTokenizer,
    "strangers.Characters": lambda: Characters(string.printable),
}


def _hugging_face(folder: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer.Config(path=str(small.write_tokenizer(folder))).build()


SUPPORT_FINGERPRINT: Stored[SupportsFingerprint] = {
    "ax_input.HuggingFaceTokenizer": _hugging_face,
    "ax_input.MemoryDocuments": lambda _: small.documents(),
}

SUPPORT_MARKS: Stored[SupportsMarks] = {
    "ax_input.HuggingFaceTokenizer": _hugging_face,
}

ENCODERS: Built[Encoder] = {
    "ax_input.TextEncoder": lambda: TextEncoder.Config().build(tokenizer=ByteTokenizer()),
    "ax_input.ChatEncoder": lambda: ChatEncoder.Config().build(tokenizer=ByteTokenizer()),
    "ax_input.PreferenceEncoder": lambda: PreferenceEncoder.Config().build(tokenizer=ByteTokenizer()),
    "strangers.LengthEncoder": LengthEncoder,
}


def _memory_documents(_: Path) -> MemoryDocuments:
    return small.documents()


def _prepared_corpus(folder: Path) -> PreparedCorpus:
    return small.prepare_text(folder)


TOKEN_DOCUMENTS: Stored[TokenDocuments] = {
    "ax_input.MemoryDocuments": _memory_documents,
    "ax_input.PreparedCorpus": _prepared_corpus,
    "ax_input.Subset": lambda _: subsample(small.documents(), fraction=0.5),
    "ax_input.Concatenated": lambda _: Concatenated(small.documents(), by_length(small.documents(), maximum=200)),
    "ax_input.RearrangedDocuments": lambda _: FillInTheMiddle.Config(prefix_id=1, middle_id=2, suffix_id=3).build()(
        small.documents()
    ),
    "ax_input.EncodedDocuments": lambda _: encode_records(
        MemorySource(["some", "text"]), TextEncoder.Config().build(tokenizer=ByteTokenizer())
    ),
    "strangers.Lines": lambda _: Lines(small.TEXT),
}

SUPPORT_PARTS: Stored[SupportsParts] = {
    "ax_input.MemoryDocuments": _memory_documents,
    "ax_input.PreparedCorpus": _prepared_corpus,
}

CORPORA: Stored[Corpus] = {
    "ax_input.TextCorpus": lambda _: TextCorpus.Config(paths=(str(small.CORPUS),), holdout_fraction=0.3).build(),
    "ax_input.PreparedText": lambda folder: PreparedText.Config(folder=str(small.prepare_text(folder).folder)).build(),
}

STREAMS: Mapping[str, MakeStream] = {
    "ax_input.TextInput": lambda *, shard_index, shard_count: (
        small.text().build(shard_index=shard_index, shard_count=shard_count).train()
    ),
    "ax_input.Mixture": lambda *, shard_index, shard_count: (
        small.mixture().build(shard_index=shard_index, shard_count=shard_count).train()
    ),
    "ax_input.ExampleStream": lambda *, shard_index, shard_count: ExampleStream(
        small.examples(), batch_size=8, shard_index=shard_index, shard_count=shard_count
    ),
    "strangers.GrainBatches": lambda *, shard_index, shard_count: GrainBatches(
        small.TEXT, batch_size=8, seq_length=16, shard_index=shard_index, shard_count=shard_count
    ),
    "strangers.LoaderBatches": lambda *, shard_index, shard_count: loader_batches(
        small.TEXT, batch_size=8, seq_length=16, shard_index=shard_index, shard_count=shard_count
    ),
}

# ax-layers

SHARDERS: Built[Sharder] = {
    "ax_layers.Unsharded": Unsharded,
    "ax_mesh.Mesh, one device": lambda: Mesh.Config().build(devices=jax.devices()[:1]),
    "ax_mesh.Mesh, eight devices": lambda: Mesh.Config(axes={"fsdp": 8}).build(),
    "ax_mesh.Mesh, two by four": lambda: Mesh.Config(axes={"data": 2, "fsdp": 4}).build(),
    "strangers.NamedShardings": NamedShardings,
}

SUPPORT_PATHS: Built[SupportsPaths] = {
    "ax_mesh.Mesh": lambda: Mesh.Config(axes={"fsdp": 2, "tensor": 4}, overrides={"a*": (("heads", None),)}).build(),
}

ATTENTION_FNS: Mapping[str, AttentionFn] = {
    "ax_layers.dot_product_attention": dot_product_attention,
    "ax_kernels.attention.base": ax_kernels.attention.base,
    "ax_kernels.attention.blocked": ax_kernels.attention.blocked,
    "strangers.plain_attention": plain_attention,
}

PARTIAL_ATTENTIONS: Built[PartialAttention] = {
    "ax_layers.PartialDotProduct": PartialDotProduct.Config().build,
    "ax_kernels.attention.PartialBlocked": lambda: ax_kernels.attention.PartialBlocked(block_q=4, block_k=4),
}

SUPPORT_ATTENTION_OPTIONS: Mapping[str, SupportsAttentionOptions] = {
    "ax_layers.dot_product_attention": dot_product_attention,
}

ATTENTION_MASKS: Mapping[str, AttentionMask] = {
    "ax_layers.masks.causal": masks.causal,
    "ax_layers.masks.prefix": masks.prefix,
    "ax_layers.masks.sliding": masks.sliding,
    "ax_layers.masks.chunked": masks.chunked,
    "ax_layers.masks.all_of": masks.all_of,
    "ax_layers.masks.any_of": masks.any_of,
    "jax.numpy.greater_equal": jnp.greater_equal,
}

ATTENTION_BIASES: Mapping[str, AttentionBias] = {"ax_layers.alibi": alibi}

CROSS_ENTROPY_FNS: Mapping[str, CrossEntropyFn] = {
    "ax_layers.cross_entropy": cross_entropy,
    "ax_layers.regularised_cross_entropy": regularised_cross_entropy,
    "ax_kernels.cross_entropy.base": ax_kernels.cross_entropy.base,
    "ax_kernels.cross_entropy.chunked": partial_for(ax_kernels.cross_entropy.chunked, chunk_size=8).build(),
    "strangers.optax_cross_entropy": optax_cross_entropy,
}


def _cache(make: Callable[[], KVCache[State]], /) -> Callable[[], KVCache[Any]]:
    """``make``, once mypy has found the one type of state that its cache takes and gives."""
    return make


KV_CACHES: Built[KVCache[Any]] = {
    "ax_layers.DenseKVCache": _cache(lambda: DenseKVCache.Config().build()),
    "ax_layers.SlidingKVCache": _cache(lambda: SlidingKVCache.Config(window=4).build()),
    "strangers.SlidingCache": _cache(lambda: SlidingCache(4)),
}

SUPPORT_WINDOWS: Built[SupportsWindow] = {
    "ax_layers.SlidingKVCache": lambda: SlidingKVCache.Config(window=4).build(),
}

SEQUENCE_LAYERS: Built[SequenceLayer] = {
    "ax_layers.Attention": lambda: small.attention().build(dim=16),
    "ax_layers.Block": lambda: small.block().build(dim=16),
    "ax_layers.Repeat": lambda: Repeat.Config(num_layers=2, layer=small.block()).build(dim=16),
    "ax_layers.ParallelBlock": lambda: ParallelBlock.Config(
        attention=small.attention(), ffn=FeedForward.Config(hidden_dim=32)
    ).build(dim=16),
    "ax_layers.Stack": lambda: Stack.Config(layers={"first": small.block(), "second": small.block()}).build(dim=16),
    "ax_layers.Remat": lambda: Remat.Config(layer=small.block()).build(dim=16),
    "ax_layers.LatentAttention": lambda: LatentAttention.Config(
        num_heads=8, head_dim=4, rotary_dim=2, value_dim=4, latent_dim=8
    ).build(dim=16),
    "ax_layers.Mamba2": lambda: Mamba2.Config(num_heads=4, head_dim=8, state_dim=4).build(dim=16),
    "ax_layers.GatedDelta": lambda: GatedDelta.Config(num_key_heads=2, key_dim=4, num_value_heads=4, value_dim=8).build(
        dim=16
    ),
    "ax_layers.Residual": lambda: Residual.Config(layer=small.attention()).build(dim=16),
    "ax_layers.Pipeline": lambda: pipelined(Repeat.Config(num_layers=2, layer=small.block()), num_microbatches=2).build(
        dim=16
    ),
}

SUPPORT_PIECEWISE_LOSSES: Built[SupportsPiecewiseLoss] = {
    "ax_layers.Pipeline": lambda: LayerPipeline.Config(num_layers=2, layer=small.block(), num_microbatches=2).build(
        dim=16
    ),
}

STATE_SPACE_FNS: Mapping[str, StateSpaceFn] = {
    "ax_layers.ssd": ssd,
}

DELTA_RULE_FNS: Mapping[str, DeltaRuleFn] = {
    "ax_layers.delta_rule": delta_rule,
}

SEQUENCE_CONVS: Built[SequenceConv] = {
    "ax_layers.CausalConv": lambda: CausalConv.Config(width=3).build(dim=16, axes=(None,)),
}

SEQUENCE_PROJECTIONS: Built[SequenceProjection] = {
    "ax_layers.ConvolvedProjection": lambda: ConvolvedProjection.Config().build(
        in_dim=16, out_dim=(4, 8), in_axes=(None,), out_axes=(None, None)
    ),
}

GATED_ARRAY_FNS: Built[GatedArrayFn] = {
    "ax_layers.GatedRMSNorm": lambda: GatedRMSNorm.Config().build(dim=16, axes=(None,)),
}

RANGE_FNS: Built[RangeFn] = {
    "ax_layers.tensor_range": lambda: tensor_range,
    "ax_layers.channel_range": lambda: channel_range,
    "ax_layers.DelayedRange": lambda: DelayedRange.Config().build(),
}

PROJECTIONS: Built[Projection] = {
    "ax_layers.Linear": lambda: Linear.Config().build(
        in_dim=16, out_dim=(4, 8), in_axes=(None,), out_axes=(None, None)
    ),
    "ax_layers.NormalisedProjection": lambda: NormalisedProjection.Config().build(
        in_dim=16, out_dim=(4, 8), in_axes=(None,), out_axes=(None, None)
    ),
    "ax_layers.LoRA": lambda: LoRA.Config(base=Linear.Config(), rank=2, alpha=4.0).build(
        in_dim=16, out_dim=(4, 8), in_axes=(None,), out_axes=(None, None)
    ),
    "ax_layers.Int8Linear": lambda: Int8Linear.Config().build(
        in_dim=16, out_dim=(4, 8), in_axes=(None,), out_axes=(None, None)
    ),
    "ax_layers.QuantisedLinear": lambda: QuantisedLinear.Config().build(
        in_dim=16, out_dim=(4, 8), in_axes=(None,), out_axes=(None, None)
    ),
    "ax_layers.LowRankProjection": lambda: LowRankProjection.Config(rank=4).build(
        in_dim=16, out_dim=(4, 8), in_axes=(None,), out_axes=(None, None)
    ),
}

TOKEN_EMBEDDINGS: Built[TokenEmbedding] = {
    "ax_layers.Embedding": lambda: Embedding.Config().build(vocab_size=small.VOCAB_SIZE, dim=16),
}

OUTPUT_HEADS: Built[OutputHead] = {
    "ax_layers.Head": lambda: Head.Config().build(vocab_size=small.VOCAB_SIZE, dim=16),
    "ax_layers.Embedding": lambda: Embedding.Config().build(vocab_size=small.VOCAB_SIZE, dim=16),
}

ARRAY_FNS: Built[ArrayFn] = {
    "ax_layers.RMSNorm": lambda: RMSNorm.Config().build(dim=16),
    "ax_layers.LayerNorm": lambda: LayerNorm.Config().build(dim=16),
    "ax_layers.Identity": lambda: Identity.Config().build(dim=16),
    "ax_layers.FeedForward": lambda: FeedForward.Config(hidden_dim=32).build(dim=16),
    "ax_layers.relu_squared": lambda: relu_squared,
    "ax_layers.Gated": lambda: Gated.Config(layer=FeedForward.Config(hidden_dim=32)).build(dim=16),
    "ax_layers.GatedFeedForward": lambda: GatedFeedForward.Config(hidden_dim=32).build(dim=16),
    "ax_layers.Dropout": lambda: Dropout.Config(rate=0.5).build(),
    "ax_layers.MoE": lambda: small.moe().build(dim=16),
    "jax.nn.silu": lambda: jax.nn.silu,
}

GROUPED_MATMULS: Mapping[str, GroupedMatmul] = {
    "ax_layers.grouped_matmul": grouped_matmul,
    "ax_kernels.grouped_matmul.base": ax_kernels.grouped_matmul.base,
    "ax_kernels.grouped_matmul.batched": partial_for(ax_kernels.grouped_matmul.batched, block=4).build(),
    "strangers.masked_matmul": masked_matmul,
}

ROUTERS: Built[Router] = {
    "ax_layers.TopKRouter": lambda: TopKRouter.Config(top_k=2).build(dim=16, num_experts=8),
    "ax_layers.ExpertChoiceRouter": lambda: ExpertChoiceRouter.Config(experts_per_token=2.0).build(
        dim=16, num_experts=8
    ),
}

EXPERTS: Built[Experts] = {
    "ax_layers.GatedExperts": lambda: GatedExperts.Config(hidden_dim=32).build(dim=16, num_experts=8),
}

DISPATCHES: Built[Dispatch] = {
    "ax_layers.AllToAll": lambda: AllToAll.Config().build(),
    "ax_layers.Dropless": lambda: Dropless.Config().build(),
    "ax_layers.Capacity": lambda: Capacity.Config(factor=8.0).build(),
}

EXCHANGES: Mapping[str, Exchange] = {
    "ax_layers.padded_exchange": padded_exchange,
    "ax_layers.ragged_exchange": ragged_exchange,
}

LOGIT_NOISES: Built[LogitNoise] = {
    "ax_layers.NoisyGating": lambda: NoisyGating.Config().build(dim=16, num_experts=8),
}

SELECT_FNS: Mapping[str, SelectFn] = {
    "ax_layers.best_scores": best_scores,
    "ax_layers.best_scores_of_best_groups": partial_for(
        best_scores_of_best_groups, num_groups=4, num_kept_groups=2
    ).build(),
}

SELECTION_BIASES: Built[SelectionBias] = {
    "ax_layers.BalancingBias": lambda: BalancingBias.Config().build(num_experts=8),
}

ROUTER_LOSSES: Mapping[str, RouterLoss] = {
    "ax_layers.load_balance_loss": load_balance_loss,
    "ax_layers.router_z_loss": router_z_loss,
}

POSITION_ENCODINGS: Mapping[str, PositionEncoding] = {
    "ax_layers.rotary": rotary,
    "ax_layers.no_positions": no_positions,
}

FREQUENCY_SCALINGS: Mapping[str, FrequencyScaling] = {
    "ax_layers.linear_scaling": partial_for(linear_scaling, factor=4.0).build(),
    "ax_layers.ntk_scaling": partial_for(ntk_scaling, factor=4.0).build(),
    "ax_layers.llama3_scaling": partial_for(llama3_scaling, factor=4.0).build(),
    "ax_layers.yarn_scaling": partial_for(yarn_scaling, factor=4.0, original_length=64).build(),
}

POSITION_EMBEDDINGS: Built[PositionEmbedding] = {
    "ax_layers.LearnedPositions": lambda: LearnedPositions.Config(max_length=8).build(dim=16),
    "ax_layers.SinusoidalPositions": lambda: SinusoidalPositions.Config().build(dim=16),
}

QKV_PROJECTIONS: Built[QKVProjection] = {
    "ax_layers.FusedQKV": lambda: FusedQKV.Config().build(dim=16, num_heads=4, num_kv_heads=2, head_dim=4),
}

FURTHER_PREDICTIONS: Built[FurtherPredictions] = {
    "ax_layers.FurtherTokens": lambda: FurtherTokens.Config(num_tokens=2, layer=small.block()).build(dim=16),
}

LANGUAGE_MODELS: Built[LanguageModel] = {
    "ax_layers.CausalLM": lambda: small.lm().build(vocab_size=small.VOCAB_SIZE),
    "ax_layers.Distillation": lambda: Distillation.Config(student=small.lm(), teacher=small.lm()).build(
        vocab_size=small.VOCAB_SIZE
    ),
    "ax_layers.Zigzag": lambda: Zigzag.Config(model=small.lm()).build(vocab_size=small.VOCAB_SIZE),
}

INITIALIZERS: Mapping[str, Initializer] = {
    "ax_layers.initializers.zeros": initializers.zeros,
    "ax_layers.initializers.ones": initializers.ones,
    "ax_layers.initializers.constant": initializers.constant,
    "ax_layers.initializers.normal": initializers.normal,
    "ax_layers.initializers.truncated_normal": initializers.truncated_normal,
    "ax_layers.initializers.fan_in_truncated_normal": initializers.fan_in_truncated_normal,
    "ax_layers.initializers.log_uniform": initializers.log_uniform,
    "ax_layers.initializers.inverse_softplus_of_log_uniform": initializers.inverse_softplus_of_log_uniform,
}

# ax-mesh

HAS_AXES: Mapping[str, HasAxes] = {
    "ax_layers.ParamSpec": small.PARAM_SPEC,
}

# ax-runtime

STOPS: Built[Stop] = {
    "ax_runtime.agent.StopOnSignals": StopOnSignals,
    "ax_runtime.testing.StopAfter": lambda: StopAfter(3),
    "strangers.Deadline": lambda: Deadline(seconds=0.0),
}

JOBS: Built[Job] = {
    "ax_recipes.Experiment": lambda: small.experiment().build(),
    "strangers.CountingJob": lambda: CountingJob(5),
}

# ax-trainer


def _model(make: Callable[[], Model[Params]], /) -> Callable[[], Model[Any]]:
    """``make``, once mypy has found the one type of parameters that its model gives and takes."""
    return make


MODELS: Built[Model[Any]] = {
    "ax_layers.as_model(CausalLM)": _model(small.lm_model),
    "ax_layers.as_model(CausalLM), experts": _model(small.moe_model),
    "strangers.EquinoxModel": _model(lambda: EquinoxModel(small.VOCAB_SIZE, 16)),
    "strangers.FlaxModel": _model(lambda: FlaxModel(small.VOCAB_SIZE, 16)),
}


def _states(
    make: Callable[[], SupportsStateUpdates[Params, Updates]], /
) -> Callable[[], SupportsStateUpdates[Any, Any]]:
    """``make``, once mypy has found the types of parameters and of updates that its model gives and takes."""
    return make


SUPPORT_STATE_UPDATES: Built[SupportsStateUpdates[Any, Any]] = {
    "ax_layers.as_model(CausalLM), experts": _states(small.moe_model),
}

SUPPORT_BATCH_STATISTICS: Built[SupportsBatchStatistics[Any, Any, Any]] = {
    "ax_layers.as_model(CausalLM)": lambda: small.lm_model(),
    "ax_layers.as_model(CausalLM), experts": lambda: small.balanced_model(),
}

SPECS: Mapping[str, Spec] = {
    "ax_layers.ParamSpec": small.PARAM_SPEC,
}

SUPPORT_TRAINABLE: Mapping[str, SupportsTrainable] = {
    "ax_layers.ParamSpec": small.PARAM_SPEC,
}

SUPPORT_OBSERVATION: Built[SupportsObservation[Any]] = {
    "ax_layers.as_model(CausalLM)": small.lm_model,
    "ax_layers.as_model(CausalLM), experts": small.moe_model,
}

SUPPORT_FAN_IN: Mapping[str, SupportsFanIn] = {
    "ax_layers.ParamSpec": small.PARAM_SPEC,
}

SUPPORT_WEIGHT_DECAY: Mapping[str, SupportsWeightDecay] = {
    "ax_layers.ParamSpec": small.PARAM_SPEC,
}

PARTITIONERS: Built[Partitioner] = {
    "ax_mesh.Mesh, one device": lambda: Mesh.Config().build(devices=jax.devices()[:1]),
    "ax_mesh.Mesh, data parallel": lambda: Mesh.Config(axes={"data": 8}).build(),
    "ax_mesh.Mesh, fully sharded": lambda: Mesh.Config(axes={"fsdp": 8}).build(),
    "ax_mesh.Mesh, both": lambda: Mesh.Config(axes={"data": 2, "fsdp": 4}).build(),
    "ax_mesh.Mesh, sharded and tensor parallel": lambda: Mesh.Config(axes={"fsdp": 2, "tensor": 4}).build(),
    "ax_trainer.testing.SingleDevice": SingleDevice,
    "strangers.NamedShardings": NamedShardings,
}

SUPPORT_OPTIMIZER_SHARDINGS: Built[SupportsOptimizerShardings] = {
    "ax_mesh.Mesh": lambda: Mesh.Config(axes={"data": 8}, optimizer_rules=(("embed", "data"),)).build(),
}

SUPPORT_COMPILER_OPTIONS: Built[SupportsCompilerOptions] = {
    "ax_mesh.Mesh": lambda: Mesh.Config(compiler_options={"xla_backend_optimization_level": "1"}).build(),
}

BATCH_SOURCES: Built[BatchSource] = {
    "ax_input.BatchStream": lambda: small.pipeline().train(),
    "ax_input.ExampleStream": lambda: ExampleStream(small.examples(), batch_size=8),
    "strangers.RandomWindows": lambda: RandomWindows(small.TEXT, batch_size=8, seq_length=16),
    "strangers.GrainBatches": lambda: GrainBatches(small.TEXT, batch_size=8, seq_length=16),
    "strangers.LoaderBatches": lambda: loader_batches(small.TEXT, batch_size=8, seq_length=16),
}

SUPPORT_ORIGINS: Built[SupportsOrigins] = {
    "ax_input.BatchStream": lambda: small.pipeline().train(),
    "ax_input.ExampleStream": lambda: ExampleStream(small.examples(), batch_size=8),
}

SUPPORT_EPOCHS: Built[SupportsEpochs] = {
    "ax_input.BatchStream": lambda: small.pipeline().train(),
}

CHECKPOINTERS: Stored[Checkpointer] = {
    "ax_runtime.checkpoint.OrbaxCheckpointer": lambda folder: OrbaxCheckpointer.Config().build(folder=folder),
    "strangers.BareOrbax": BareOrbax,
}

METRIC_SINKS: Stored[MetricSink] = {
    "ax_runtime.agent.JsonlSink": lambda folder: JsonlSink(folder / "metrics.jsonl"),
    "ax_runtime.tensorboard.TensorBoardSink": TensorBoardSink,
    "ax_runtime.prometheus.PrometheusSink": lambda folder: PrometheusSink.Config(port=0).build(folder=folder),
    "ax_runtime.wandb.WandbSink": lambda folder: WandbSink.Config(project="p", mode="offline").build(folder=folder),
    "ax_runtime.mlflow.MlflowSink": lambda folder: MlflowSink.Config(
        experiment="e", tracking_uri=str(folder / "mlruns")
    ).build(folder=folder),
    "strangers.ListSink": lambda _: ListSink(),
}

OPTIMIZERS: Built[Optimizer] = {
    "ax_trainer.Learner": lambda: small.learner().build().for_specs(BigramModel().specs()),
    "optax.adamw": lambda: optax.adamw(1e-2),
    "optax.adafactor": lambda: optax.adafactor(1e-1),
}

SUPPORT_SPECS: Built[SupportsSpecs] = {
    "ax_trainer.Learner": lambda: small.learner().build(),
}

SUPPORT_FREEZING: Built[SupportsFreezing] = {
    "ax_trainer.Learner": lambda: small.learner().build().for_specs(BigramModel().specs()),
}

SUPPORT_FIRST_VALUES: Built[SupportsFirstValues] = {
    "ax_trainer.Learner": lambda: small.learner().build().for_specs(BigramModel().specs()),
}

SKIP_RULES: Built[SkipRule] = {
    "ax_trainer.SkipNonFinite": lambda: SkipNonFinite.Config().build(),
    "ax_trainer.SkipSpikes": lambda: SkipSpikes.Config(warm_up=1).build(),
    "ax_trainer.LossScale": lambda: LossScale.Config().build(),
}

AVERAGINGS: Built[Averaging] = {
    "ax_trainer.ParameterAverage": lambda: ParameterAverage.Config().build(),
    "ax_trainer.ScheduleFree": lambda: ScheduleFree.Config().build(),
}

STOP_SIGNALS: Built[StopSignal] = STOPS

SUPPORT_LAST_STEP: Stored[SupportsLastStep] = {
    "ax_runtime.agent.JsonlSink": lambda folder: JsonlSink(folder / "metrics.jsonl"),
}

HOOKS: Built[Hook] = {
    "ax_trainer.ProfilerWindows": lambda: ProfilerWindows.Config().build(folder=tempfile.gettempdir()),
    "strangers.StepTimer": StepTimer,
}

SUPPORT_START_AND_END: Built[SupportsStartAndEnd] = {
    "ax_trainer.ProfilerWindows": lambda: ProfilerWindows.Config().build(folder=tempfile.gettempdir()),
}

# ax-recipes

PIPELINES: Built[Pipeline] = {
    "ax_input.TextInput": small.pipeline,
    "ax_input.Mixture": lambda: small.mixture().build(),
}

SUPPORT_LEDGER: Built[SupportsLedger] = {
    "ax_input.TextInput": small.pipeline,
    "ax_input.Mixture": lambda: small.mixture().build(),
}

SUPPORT_BATCH_SHAPES: Mapping[str, SupportsBatchShapes] = {
    "ax_input.TextInput.Config": small.text(),
    "ax_input.Mixture.Config": small.mixture(),
}

SUPPORT_DESCRIPTION: Built[SupportsDescription] = {
    "ax_mesh.Mesh": lambda: Mesh.Config(axes={"data": 2, "fsdp": 4}).build(),
}

PLACEMENTS: Built[Placement] = {
    "ax_mesh.Mesh": lambda: Mesh.Config(axes={"data": 2, "fsdp": 4}).build(),
    "ax_mesh.Mesh, experts": lambda: Mesh.Config(axes={"data": 2, "expert": 2, "tensor": 2}).build(),
    "strangers.NamedShardings": NamedShardings,
}

STATE_STORES: Stored[StateStore] = {
    "ax_runtime.checkpoint.OrbaxCheckpointer": lambda folder: OrbaxCheckpointer.Config().build(folder=folder),
}

LOOPS: Built[Loop] = {
    "ax_trainer.Trainer": lambda: small.training().build(
        num_steps=10, model=small.lm_model(), partitioner=SingleDevice(), batches=small.pipeline().train()
    ),
    "strangers.OptaxLoop": lambda: OptaxLoop(
        learning_rate=1e-2, num_steps=10, model=small.lm_model(), batches=small.pipeline().train()
    ),
}

SUPPORT_ABSTRACT_STATE: Built[SupportsAbstractState] = {
    "ax_trainer.Trainer": lambda: small.training().build(
        num_steps=10, model=small.lm_model(), partitioner=SingleDevice(), batches=small.pipeline().train()
    ),
}

SUPPORT_LOWERING: Built[SupportsLowering] = {
    "ax_trainer.Trainer": lambda: small.training().build(
        num_steps=10, model=small.lm_model(), partitioner=SingleDevice(), batches=small.pipeline().train()
    ),
}

OUTCOMES: Mapping[str, type[Outcome]] = {
    "ax_trainer.Result": Result,
    "strangers.Ending": Ending,
}
