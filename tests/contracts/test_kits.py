"""Each owner's conformance kit on everything that fits: what types can't say."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import Config, setting
from ax_config.protocols import Buildable
from ax_config.testing import check_config
from ax_inference.testing import check_decoder
from ax_input import ByteTokenizer, HuggingFaceTokenizer, MemorySource, Packing, Rows, prepare_corpus
from ax_input.testing import (
    check_batch_stream,
    check_corpus,
    check_encoder,
    check_source,
    check_token_documents,
    check_tokenizer,
)
from ax_layers import AllToAll, GatedExperts, Module, functional
from ax_layers.protocols import ArrayTree, OutputHead, Routing
from ax_layers.testing import (
    check_attention_fn,
    check_attention_options,
    check_cross_entropy_fn,
    check_delta_rule_fn,
    check_extend,
    check_grouped_matmul,
    check_kv_cache,
    check_partial_attention,
    check_sharded,
    check_sharder,
    check_state_space_fn,
)
from ax_mesh import Mesh
from ax_mesh.testing import check_has_axes
from ax_runtime.agent import StopOnSignals, read_jsonl
from ax_runtime.testing import check_job
from ax_trainer import Trainer, averaged, init_state, train_step
from ax_trainer.protocols import (
    Hook,
    Model,
    Optimizer,
    StopSignal,
    SupportsBatchStatistics,
    SupportsEpochs,
    SupportsFanIn,
    SupportsFirstValues,
    SupportsFreezing,
    SupportsLastStep,
    SupportsObservation,
    SupportsOrigins,
    SupportsSpecs,
    SupportsStartAndEnd,
    SupportsStateUpdates,
    SupportsTrainable,
    SupportsWeightDecay,
)
from ax_trainer.testing import (
    BigramModel,
    MemoryBatches,
    Record,
    SingleDevice,
    bigram_batches,
    check_batch_source,
    check_batch_statistics,
    check_checkpointer,
    check_model,
    check_partitioner,
    check_sink,
    check_skip_rule,
    check_state_updates,
)

from . import fits, small
from .strangers.list_sink import ListSink
from .strangers.ready import Ready

P = ParamSpec("P")
R = TypeVar("R")

LACKS = {"strangers.plain_attention": ("window", "logit_cap")}
"""Options that an attention function may refuse."""

KEEPS = {"strangers.SlidingCache": 4, "ax_layers.SlidingKVCache": 4}
"""How many positions a cache remembers, where that isn't all."""


@pytest.mark.parametrize("name", fits.BUILDABLE)
def test_buildable(name: str) -> None:
    thing = fits.BUILDABLE[name]
    assert isinstance(thing, Buildable)
    if isinstance(thing, Config):
        check_config(thing)


@pytest.mark.parametrize("name", fits.DECODERS)
def test_decoder(name: str) -> None:
    decoder, params = fits.DECODERS[name]()
    logits, _ = decoder.prefill(params, jnp.zeros((1, 1), jnp.int32), jnp.ones(1, jnp.int32), decoder.init_cache(1, 1))
    check_decoder(decoder, params, logits.shape[-1])


@pytest.mark.parametrize("name", fits.SOURCES)
def test_source(name: str, tmp_path: Path) -> None:
    check_source(fits.SOURCES[name](tmp_path))


@pytest.mark.parametrize("name", fits.TOKENIZERS)
def test_tokenizer(name: str) -> None:
    check_tokenizer(fits.TOKENIZERS[name](), lossless=name == "ax_input.ByteTokenizer")


@pytest.mark.parametrize("name", fits.SUPPORT_FINGERPRINT)
def test_supports_fingerprint(name: str, tmp_path: Path) -> None:
    first, again = (fits.SUPPORT_FINGERPRINT[name](tmp_path) for _ in range(2))
    assert first.fingerprint == again.fingerprint != ""


@pytest.mark.parametrize("name", fits.SUPPORT_MARKS)
def test_supports_marks(name: str, tmp_path: Path) -> None:
    tokenizer = fits.SUPPORT_MARKS[name](tmp_path)
    assert isinstance(tokenizer, HuggingFaceTokenizer)
    assert tokenizer.encode_marked("a<|end|>").tolist() == [*tokenizer.encode("a"), tokenizer.eos_id]
    assert tokenizer.eos_id not in tokenizer.encode("a<|end|>")


@pytest.mark.parametrize("name", fits.ENCODERS)
def test_encoder(name: str, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    fields = {"text": "some", "messages": messages, "prompt": "2+2=", "chosen": "4", "rejected": "5"}
    encoder, records = fits.ENCODERS[name](), MemorySource([fields, fields])
    check_encoder(encoder, [records[0]])
    corpus = prepare_corpus([records], tmp_path, tokenizer=ByteTokenizer(), encoder=encoder)
    check_token_documents(corpus)
    assert set(corpus[0]) == set(encoder.dtypes)


@pytest.mark.parametrize("name", fits.TOKEN_DOCUMENTS)
def test_token_documents(name: str, tmp_path: Path) -> None:
    documents = fits.TOKEN_DOCUMENTS[name](tmp_path)
    check_token_documents(documents)
    rows = Rows(documents, packing=Packing.Config(mode="best_fit").build(), seq_length=16, eos_id=256)
    assert rows.index.num_places == documents.lengths.sum() + len(documents)
    assert (rows.gather(np.arange(len(rows)))["targets"] >= 0).sum() == rows.index.num_places


@pytest.mark.parametrize("name", fits.SUPPORT_PARTS)
def test_supports_parts(name: str, tmp_path: Path) -> None:
    part = fits.SUPPORT_PARTS[name](tmp_path).part(1, 3, 40)
    assert np.array_equal(part["tokens"], fits.TOKEN_DOCUMENTS[name](tmp_path)[1]["tokens"][3:40])


@pytest.mark.parametrize("name", fits.CORPORA)
def test_corpus(name: str, tmp_path: Path) -> None:
    check_corpus(fits.CORPORA[name](tmp_path))


@pytest.mark.parametrize("name", fits.STREAMS)
def test_stream(name: str) -> None:
    check_batch_stream(fits.STREAMS[name], num_batches=4, shard_counts=(1, 2, 4, 8))


@pytest.mark.parametrize("name", fits.SHARDERS)
def test_sharder(name: str) -> None:
    check_sharder(fits.SHARDERS[name]())


@pytest.mark.parametrize("name", fits.SUPPORT_PATHS)
def test_supports_paths(name: str) -> None:
    for path in ("", "a/b", "c"):
        check_sharder(fits.SUPPORT_PATHS[name]().at(path))


@pytest.mark.parametrize("name", fits.ATTENTION_FNS)
def test_attention_fn(name: str) -> None:
    check_attention_fn(fits.ATTENTION_FNS[name], may_refuse=LACKS.get(name, ()))


@pytest.mark.parametrize("name", fits.PARTIAL_ATTENTIONS)
def test_partial_attention(name: str) -> None:
    check_partial_attention(fits.PARTIAL_ATTENTIONS[name]())


@pytest.mark.parametrize("name", fits.SUPPORT_ATTENTION_OPTIONS)
def test_supports_attention_options(name: str) -> None:
    check_attention_options(fits.SUPPORT_ATTENTION_OPTIONS[name])


@pytest.mark.parametrize("name", fits.CROSS_ENTROPY_FNS)
def test_cross_entropy_fn(name: str) -> None:
    check_cross_entropy_fn(fits.CROSS_ENTROPY_FNS[name])


@pytest.mark.parametrize("name", fits.KV_CACHES)
def test_kv_cache(name: str) -> None:
    check_kv_cache(fits.KV_CACHES[name](), keeps=KEEPS.get(name))


@pytest.mark.parametrize("name", fits.SUPPORT_WINDOWS)
def test_supports_window(name: str) -> None:
    assert fits.SUPPORT_WINDOWS[name]().window == KEEPS[name]


@pytest.mark.parametrize("name", fits.HAS_AXES)
def test_has_axes(name: str) -> None:
    check_has_axes({"parameter": fits.HAS_AXES[name]})


@pytest.mark.parametrize("name", fits.MODELS)
def test_model(name: str) -> None:
    model = fits.MODELS[name]()
    check_model(model, small.batch())
    check_has_axes(model.specs())


@pytest.mark.parametrize("name", fits.SUPPORT_STATE_UPDATES)
def test_supports_state_updates(name: str) -> None:
    states = fits.SUPPORT_STATE_UPDATES[name]()
    assert isinstance(states, SupportsStateUpdates)
    assert name in fits.MODELS, "it has a loss as well"
    assert check_state_updates(fits.MODELS[name](), small.batch()), "there is a state"


@pytest.mark.parametrize("name", fits.PARTITIONERS)
def test_partitioner(name: str) -> None:
    check_partitioner(fits.PARTITIONERS[name](), small.lm_model().specs(), small.batch())


@pytest.mark.parametrize("name", fits.BATCH_SOURCES)
def test_batch_source(name: str) -> None:
    check_batch_source(fits.BATCH_SOURCES[name])


@pytest.mark.parametrize("name", fits.SUPPORT_ORIGINS)
def test_the_batch_after_a_position_has_origins(name: str) -> None:
    source = fits.SUPPORT_ORIGINS[name]()
    assert isinstance(source, SupportsOrigins)  # so that check_batch_source asks it


@pytest.mark.parametrize("name", fits.SUPPORT_EPOCHS)
def test_epochs_are_counted(name: str) -> None:
    source = fits.SUPPORT_EPOCHS[name]()
    assert isinstance(source, SupportsEpochs)  # so that check_batch_source asks it


@pytest.mark.parametrize("name", fits.CHECKPOINTERS)
def test_checkpointer(name: str, tmp_path: Path) -> None:
    check_checkpointer(lambda: fits.CHECKPOINTERS[name](tmp_path))


@pytest.mark.parametrize("name", fits.METRIC_SINKS)
def test_metric_sink(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the one store that needs neither server nor database
    check_sink(lambda: fits.METRIC_SINKS[name](tmp_path))


@pytest.mark.parametrize("name", fits.SUPPORT_LAST_STEP)
def test_a_sink_that_remembers(name: str, tmp_path: Path) -> None:
    assert isinstance(fits.SUPPORT_LAST_STEP[name](tmp_path), SupportsLastStep)  # so that check_sink asks it


def test_metrics_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    def lines() -> list[Record]:
        return [(line.step, line.name, line.values) for line in read_jsonl(tmp_path / "metrics.jsonl")]

    check_sink(lambda: fits.METRIC_SINKS["ax_runtime.agent.JsonlSink"](tmp_path), lines)
    notebook = ListSink()
    check_sink(lambda: notebook, lambda: notebook.records)


@pytest.mark.parametrize("name", fits.JOBS)
def test_job(name: str, tmp_path: Path) -> None:
    check_job(fits.JOBS[name], tmp_path)


@pytest.mark.parametrize("name", fits.SEQUENCE_LAYERS)
def test_sequence_layer(name: str) -> None:
    layer = fits.SEQUENCE_LAYERS[name]()
    assert isinstance(layer, Module)
    check_extend(layer, layer.init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (2, 7, 16)))


@pytest.mark.parametrize("name", fits.SUPPORT_PIECEWISE_LOSSES)
def test_piecewise_loss(name: str) -> None:
    """What comes after the layer is summed over pieces as it is over the whole."""
    layer = fits.SUPPORT_PIECEWISE_LOSSES[name]()
    assert isinstance(layer, Module)
    params = layer.init(jax.random.key(0))
    x, weights = jax.random.normal(jax.random.key(1), (4, 7, 16)), jnp.arange(4, dtype=jnp.float32)

    def tail(factor: jax.Array, y: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        return factor * (y.sum(axis=(1, 2)) * rows).sum(), rows

    def by_pieces(x: jax.Array, factor: jax.Array) -> tuple[jax.Array, jax.Array]:
        return functional(layer.piecewise_loss)(params, None, x, tail, factor, weights)[0]

    def whole(x: jax.Array, factor: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, _ = functional(cast("Callable[..., jax.Array]", layer))(params, None, x)
        return tail(factor, y, weights)

    factor = jnp.float32(3)
    differentiated = (jax.jit(jax.value_and_grad(of, argnums=(0, 1), has_aux=True)) for of in (by_pieces, whole))
    ((loss, rows), gradients), ((wanted, _), of_whole) = (of(x, factor) for of in differentiated)
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    np.testing.assert_array_equal(np.sort(rows.reshape(-1)), weights)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), gradients, of_whole)


@pytest.mark.parametrize("name", fits.PLACEMENTS)
def test_placement(name: str) -> None:
    placement = fits.PLACEMENTS[name]()
    check_partitioner(placement, small.lm_model().specs(), small.batch())
    check_sharder(placement)


@pytest.mark.parametrize("name", fits.STATE_STORES)
def test_state_store(name: str, tmp_path: Path) -> None:
    check_checkpointer(lambda: fits.STATE_STORES[name](tmp_path / "all"))
    store = fits.STATE_STORES[name](tmp_path / "part")
    store.save(3, {"params": {"a": jnp.arange(3), "b": jnp.ones(2)}, "rest": jnp.zeros(4)}, {})
    part = store.restore_part(3, {"params": {"a": jax.ShapeDtypeStruct((3,), jnp.int32)}})
    store.close()
    assert jax.tree.map(np.array_equal, part, {"params": {"a": np.arange(3)}}) == {"params": {"a": True}}


@pytest.mark.parametrize("name", fits.PIPELINES)
def test_pipeline(name: str) -> None:
    pipeline = fits.PIPELINES[name]()
    check_batch_source(pipeline.train)
    rows = {array.shape for array in next(pipeline.train()).values()}
    assert rows == {pipeline.batch_shape}
    for _ in range(2):
        assert len(list(pipeline.validation(max_batches=2))) == 2
    assert pipeline.bytes_per_token > 0


@pytest.mark.parametrize("name", fits.SUPPORT_LEDGER)
def test_supports_ledger(name: str) -> None:
    pipeline, dealt = fits.SUPPORT_LEDGER[name](), fits.PIPELINES[name]().train()
    for step in range(3):
        batch = pipeline.ledger.read(pipeline.ledger.batch_at(step))
        for array_name, array in next(dealt).items():
            assert np.array_equal(batch[array_name], array)


@pytest.mark.parametrize("name", fits.LOOPS)
def test_loop(name: str) -> None:
    with jax.numpy_dtype_promotion("standard"):  # which optax counts on; only the stranger needs it
        outcome = fits.LOOPS[name]().run()
    assert isinstance(outcome, tuple(fits.OUTCOMES.values()))
    assert (outcome.step, outcome.why) == (10, "finished")


@pytest.mark.parametrize("name", fits.SUPPORT_ABSTRACT_STATE)
def test_supports_abstract_state(name: str) -> None:
    leaves = jax.tree_util.tree_leaves_with_path(fits.SUPPORT_ABSTRACT_STATE[name]().abstract_state())
    parts = {jax.tree_util.keystr(path[:1], simple=True) for path, _ in leaves}
    assert {"params", "opt_state"} <= parts
    assert all(leaf.sharding.shard_shape(leaf.shape) is not None for _, leaf in leaves)


# What follows has no kit. These are seams of one call, and the call is tried: first inside a model, then around the training
# of the smallest one.


def pure(call: Callable[P, R]) -> Callable[P, R]:
    """``call``; with new parameters, if it is a module's."""
    owner: object = getattr(call, "__self__", call)
    if not isinstance(owner, Module):
        return call
    params = owner.init(jax.random.key(0))

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return functional(call)(params, None, *args, **kwargs)[0]

    return run


@pytest.mark.parametrize("name", fits.ARRAY_FNS)
def test_array_fn(name: str) -> None:
    x = jnp.ones((2, 3, 16))
    y = pure(fits.ARRAY_FNS[name]())(x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)


@pytest.mark.parametrize("name", fits.GROUPED_MATMULS)
def test_grouped_matmul(name: str) -> None:
    check_grouped_matmul(fits.GROUPED_MATMULS[name])


TOKENS = jax.random.normal(jax.random.key(1), (2, 6, 16))
"""Of two sequences; with logits or scores for eight experts in the first half of their dims."""


@pytest.mark.parametrize("name", fits.ROUTERS)
def test_router(name: str) -> None:
    router = fits.ROUTERS[name]()
    assert 0 < router.experts_per_token <= 8
    routing = pure(router)(TOKENS)
    assert [x.dtype for x in routing] == [jnp.int32, jnp.int32, jnp.float32]
    assert {x.shape[0] for x in routing} == {2}
    assert bool((routing.weights >= 0).all())
    for tokens, experts in zip(routing.tokens.tolist(), routing.experts.tolist(), strict=True):
        assert set(tokens) <= set(range(6))
        assert set(experts) <= set(range(8))
        assert len(set(zip(tokens, experts, strict=True))) == len(tokens), "an expert has a token at most once"


ROUTING = Routing(*(jnp.asarray(x) for x in ([[0, 1, 1], [3, 3, 5]], [[7, 7, 2], [0, 1, 1]], [[0.5, 1.0, 2.0]] * 2)))
"""Three assignments of each sequence."""


@pytest.mark.parametrize("name", fits.EXPERTS)
def test_experts(name: str) -> None:
    experts = fits.EXPERTS[name]()
    y, reached = pure(experts)(TOKENS, ROUTING)
    assert reached.tolist() == [[1, 2, 0, 0, 0, 0], [0, 0, 0, 2, 0, 1]]
    assert (jnp.abs(y).sum(-1) > 0).tolist() == (reached > 0).tolist(), "who isn't seen gets nothing"
    assert experts.training_flops_per_token(6) > 0


@pytest.mark.parametrize("name", fits.DISPATCHES)
def test_dispatch(name: str) -> None:
    scales = jnp.arange(1.0, 9.0)
    weight = scales[:, None, None] * jnp.eye(16)[None]  # each expert multiplies by its number
    y, reached = pure(fits.DISPATCHES[name]())(
        TOKENS, ROUTING, [weight], [("expert", None, None)], lambda rows, weights, matmul: matmul(rows, weights[0])
    )
    factors = np.asarray([[0.5 * 8, 1.0 * 8 + 2.0 * 3, 0, 0, 0, 0], [0, 0, 0, 0.5 * 1 + 1.0 * 2, 0, 2.0 * 2]])
    np.testing.assert_allclose(y, factors[..., None] * TOKENS, rtol=1e-5)
    assert reached.tolist() == [[1, 2, 0, 0, 0, 0], [0, 0, 0, 2, 0, 1]]


@pytest.mark.parametrize("name", fits.PLACEMENTS)
def test_experts_on_many_devices(name: str) -> None:
    placement, x = fits.PLACEMENTS[name](), jax.random.normal(jax.random.key(1), (8, 6, 16))
    check_sharded(small.moe().clone(dim=16), x, sharder=placement, shardings=placement.shardings)


@pytest.mark.parametrize("name", fits.EXCHANGES)
def test_exchange(name: str) -> None:
    mesh = jax.make_mesh((8,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("device")

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(spec, spec), out_specs=spec)
    def send(rows: jax.Array, sizes: jax.Array) -> jax.Array:
        return fits.EXCHANGES[name](rows[0], sizes[0], sizes[0], axis_name=("device",))[None]

    rows, sizes = jax.random.normal(jax.random.key(1), (8, 8, 3, 2)), jnp.full((8, 8), 2)
    if name == "ax_layers.ragged_exchange":  # XLA hasn't got it for CPUs
        assert "ragged_all_to_all" in send.trace(rows, sizes).lower(lowering_platforms=("tpu",)).as_text()
    else:
        np.testing.assert_array_equal(send(rows, sizes)[:, :, :2], jnp.swapaxes(rows, 0, 1)[:, :, :2])


def test_tokens_sent_to_their_experts_by_the_rules_of_a_mesh() -> None:
    mesh, x = Mesh.Config(axes={"fsdp": 2, "expert": 4}).build(), jax.random.normal(jax.random.key(1), (8, 6, 16))
    split = mesh.split([("batch",), ("expert", "mlp")], [(8,), (8, 32)], sharing=["expert"])
    assert split == {"batch": ("fsdp", "expert"), "expert": ("expert",)}, "tokens are split over experts' devices, too"
    config = setting(GatedExperts, dispatch=AllToAll.Config())(small.moe())
    check_sharded(config.clone(dim=16), x, sharder=mesh, shardings=mesh.shardings)


@pytest.mark.parametrize("name", fits.PLACEMENTS)
@pytest.mark.parametrize("layer", small.DENSE_LAYERS)
def test_dense_layers_on_many_devices(layer: str, name: str) -> None:
    placement, x = fits.PLACEMENTS[name](), jax.random.normal(jax.random.key(1), (8, 6, 16))
    config = small.DENSE_LAYERS[layer]
    # Gradients reach 40 here, so that rounding alone is above the usual bound.
    check_sharded(config.build(dim=16), x, sharder=placement, shardings=placement.shardings, tolerance=1e-4)


@pytest.mark.parametrize("name", fits.LOGIT_NOISES)
def test_logit_noise(name: str) -> None:
    logits = TOKENS[..., :8]
    np.testing.assert_array_equal(pure(fits.LOGIT_NOISES[name]())(logits, TOKENS), logits)  # without a key


@pytest.mark.parametrize("name", fits.SELECT_FNS)
def test_select_fn(name: str) -> None:
    chosen = fits.SELECT_FNS[name](TOKENS[..., :8], k=3)
    assert (chosen.shape, chosen.dtype) == ((2, 6, 3), jnp.int32)
    best = TOKENS[..., :8].argmax(-1)
    assert all(len({*row}) == 3 for row in chosen.reshape(-1, 3).tolist()), "they differ"
    assert "groups" in name or bool((chosen == best[..., None]).any(-1).all()), "the best is among them"


@pytest.mark.parametrize("name", fits.SELECTION_BIASES)
def test_selection_bias(name: str) -> None:
    bias = fits.SELECTION_BIASES[name]()
    assert pure(bias)(TOKENS[..., :8]).shape == (2, 6, 8)
    pure(bias.observe)(jnp.ones(8))


@pytest.mark.parametrize("name", fits.ROUTER_LOSSES)
def test_router_loss(name: str) -> None:
    logits = TOKENS[..., :8]
    loss = fits.ROUTER_LOSSES[name](logits, jax.nn.softmax(logits), jnp.ones(8))
    assert (loss.shape, loss.dtype) == ((), jnp.float32)
    assert float(loss) > 0


@pytest.mark.parametrize("name", fits.PROJECTIONS)
def test_projection(name: str) -> None:
    y = pure(fits.PROJECTIONS[name]())(jnp.ones((2, 3, 16)))
    assert y.shape == (2, 3, 4, 8)


@pytest.mark.parametrize("name", fits.TOKEN_EMBEDDINGS)
def test_token_embedding(name: str) -> None:
    y = pure(fits.TOKEN_EMBEDDINGS[name]())(jnp.ones((2, 3), jnp.int32))
    assert y.shape == (2, 3, 16)


@pytest.mark.parametrize("name", fits.OUTPUT_HEADS)
def test_output_head(name: str) -> None:
    head, x = fits.OUTPUT_HEADS[name](), jax.random.normal(jax.random.key(1), (2, 3, 16))
    assert isinstance(head, OutputHead)
    weight = pure(head.output_weight)()
    assert weight.shape == (small.VOCAB_SIZE, 16)
    np.testing.assert_allclose(pure(head.attend)(x), x @ weight.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", fits.POSITION_ENCODINGS)
def test_position_encoding(name: str) -> None:
    encode, x = fits.POSITION_ENCODINGS[name], jax.random.normal(jax.random.key(1), (2, 5, 3, 8))
    rows = jnp.broadcast_to(jnp.arange(5), (2, 5))
    np.testing.assert_allclose(encode(x, positions=rows), encode(x, positions=None), rtol=1e-6)


@pytest.mark.parametrize("name", fits.POSITION_EMBEDDINGS)
def test_position_embedding(name: str) -> None:
    embed, x = pure(fits.POSITION_EMBEDDINGS[name]()), jax.random.normal(jax.random.key(1), (2, 5, 16))
    rows = jnp.broadcast_to(jnp.arange(5), (2, 5))
    np.testing.assert_allclose(embed(x, positions=rows), embed(x), rtol=1e-6)


@pytest.mark.parametrize("name", fits.QKV_PROJECTIONS)
def test_qkv_projection(name: str) -> None:
    query, key, value = pure(fits.QKV_PROJECTIONS[name]())(jnp.ones((2, 5, 16)))
    assert (query.shape, key.shape, value.shape) == ((2, 5, 4, 4), (2, 5, 2, 4), (2, 5, 2, 4))


@pytest.mark.parametrize("name", fits.FURTHER_PREDICTIONS)
def test_further_predictions(name: str) -> None:
    further, x = fits.FURTHER_PREDICTIONS[name](), jax.random.normal(jax.random.key(1), (2, 5, 16))
    targets = jnp.arange(10, dtype=jnp.int32).reshape(2, 5)
    parts = pure(further)(x, x, targets, positions=None, segments=None)
    assert len(parts) == further.num_predictions
    for distance, part in enumerate(parts, 1):
        assert part.hidden.shape == x.shape
        np.testing.assert_array_equal(part.targets[:, : 5 - distance], targets[:, distance:])
        assert bool((part.targets[:, 5 - distance :] < 0).all())


@pytest.mark.parametrize("name", fits.LANGUAGE_MODELS)
def test_language_model(name: str) -> None:
    model = fits.LANGUAGE_MODELS[name]()
    tokens = jax.random.randint(jax.random.key(1), (2, 6), 0, small.VOCAB_SIZE, jnp.int32)
    logits = pure(model)(tokens)
    loss, metrics = pure(model.loss)({"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}, train=False)
    log_p = jax.nn.log_softmax(logits[:, :-1], axis=-1)
    wanted = -jnp.take_along_axis(log_p, tokens[:, 1:, None], axis=-1).mean()
    np.testing.assert_allclose([loss, metrics["loss"][0]], [wanted, wanted], rtol=1e-5)
    assert float(metrics["loss"][1]) == 10
    cache = model.init_cache(2, 8)
    read, cache = pure(model.prefill)(tokens[:, :4], jnp.asarray([4, 3], jnp.int32), cache)
    np.testing.assert_allclose(read, logits[jnp.arange(2), jnp.asarray([3, 2])], atol=1e-5)
    read, _ = pure(model.decode)(tokens[jnp.arange(2), jnp.asarray([4, 3])], cache)
    np.testing.assert_allclose(read, logits[jnp.arange(2), jnp.asarray([4, 3])], atol=1e-5)
    assert model.training_flops_per_token(8) > 0


@pytest.mark.parametrize("name", fits.FREQUENCY_SCALINGS)
def test_frequency_scaling(name: str) -> None:
    frequencies = 10_000.0 ** -jnp.linspace(0.0, 1.0, 16)
    scaled = fits.FREQUENCY_SCALINGS[name](frequencies)
    assert (scaled.shape, scaled.dtype) == (frequencies.shape, frequencies.dtype)
    assert bool((scaled <= frequencies * (1 + 1e-6)).all()), "longer texts turn no pair faster"


ROWS = (jnp.arange(4)[None, :, None], jnp.arange(6)[None, None, :])
"""Positions of four queries and of six keys."""


@pytest.mark.parametrize("name", fits.ATTENTION_MASKS)
def test_attention_mask(name: str) -> None:
    sees = fits.ATTENTION_MASKS[name](*ROWS)
    assert jnp.broadcast_shapes(sees.shape, (1, 4, 6)) == (1, 4, 6)
    assert sees.dtype == jnp.bool_


@pytest.mark.parametrize("name", fits.ATTENTION_BIASES)
def test_attention_bias(name: str) -> None:
    bias = fits.ATTENTION_BIASES[name](*ROWS, num_heads=3)
    assert (bias.shape, bias.dtype) == ((1, 3, 4, 6), jnp.float32)


@pytest.mark.parametrize("name", fits.INITIALIZERS)
def test_initializer(name: str) -> None:
    draw = fits.INITIALIZERS[name]
    first, again = (draw(jax.random.key(0), (4, 3), jnp.bfloat16, fan_in=4) for _ in range(2))
    assert (first.shape, first.dtype) == ((4, 3), jnp.dtype(jnp.bfloat16))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("name", fits.SPECS)
def test_spec(name: str) -> None:
    check_has_axes({"parameter": fits.SPECS[name]})


@pytest.mark.parametrize("name", fits.STATE_SPACE_FNS)
def test_state_space_fn(name: str) -> None:
    check_state_space_fn(fits.STATE_SPACE_FNS[name])


@pytest.mark.parametrize("name", fits.DELTA_RULE_FNS)
def test_delta_rule_fn(name: str) -> None:
    check_delta_rule_fn(fits.DELTA_RULE_FNS[name])


@pytest.mark.parametrize("name", [*fits.SEQUENCE_CONVS, *fits.SEQUENCE_PROJECTIONS])
def test_sequence_conv_and_projection(name: str) -> None:
    conv = {**fits.SEQUENCE_CONVS, **fits.SEQUENCE_PROJECTIONS}[name]()
    whole = pure(conv)(TOKENS)
    first, cache = pure(conv.extend)(TOKENS[:, :4], conv.init_cache(batch_size=2), positions=jnp.arange(4)[None])
    rest, _ = pure(conv.extend)(TOKENS[:, 4:], cache, positions=4 + jnp.arange(2)[None])
    np.testing.assert_allclose(jnp.concatenate([first, rest], axis=1), whole, rtol=1e-5, atol=1e-5)
    apart = pure(conv)(TOKENS, segments=jnp.asarray([[0, 0, 0, 1, 1, 1]] * 2))
    np.testing.assert_allclose(apart[:, 3:], pure(conv)(TOKENS[:, 3:]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", fits.GATED_ARRAY_FNS)
def test_gated_array_fn(name: str) -> None:
    y = pure(fits.GATED_ARRAY_FNS[name]())(TOKENS, TOKENS)
    assert (y.shape, y.dtype) == (TOKENS.shape, TOKENS.dtype)


@pytest.mark.parametrize("name", fits.RANGE_FNS)
def test_range_fn(name: str) -> None:
    largest = pure(fits.RANGE_FNS[name]())(TOKENS[0], dims=(1,))
    assert largest.dtype == jnp.float32
    assert largest.shape in {(6, 1), (1, 1)}
    assert bool((jnp.abs(TOKENS[0]) <= largest).all())


@pytest.mark.parametrize("name", fits.SUPPORT_TRAINABLE)
def test_supports_trainable(name: str) -> None:
    assert isinstance(fits.SUPPORT_TRAINABLE[name], SupportsTrainable)


@pytest.mark.parametrize("name", fits.SUPPORT_WEIGHT_DECAY)
def test_supports_weight_decay(name: str) -> None:
    assert isinstance(fits.SUPPORT_WEIGHT_DECAY[name], SupportsWeightDecay)


def train(optimizer: Optimizer, *, hooks: Sequence[Hook] = (), stop: StopSignal | None = None) -> ListSink:
    """Train for five steps, or less if ``stop`` says so."""
    sink = ListSink()
    Trainer.Config(num_steps=5, optimizer=Ready(optimizer)).build(
        model=BigramModel(),
        partitioner=SingleDevice(),
        batches=MemoryBatches(bigram_batches(1)),
        sinks=[sink],
        hooks=hooks,
        stop=stop,
    ).run()
    return sink


@pytest.mark.parametrize("name", fits.SUPPORT_BATCH_STATISTICS)
def test_supports_batch_statistics(name: str) -> None:
    model = fits.SUPPORT_BATCH_STATISTICS[name]()
    assert isinstance(model, SupportsBatchStatistics)
    check_batch_statistics(cast("Model[ArrayTree]", model), small.batch())


@pytest.mark.parametrize("name", fits.SUPPORT_OBSERVATION)
def test_supports_observation(name: str) -> None:
    model = fits.SUPPORT_OBSERVATION[name]()
    assert isinstance(model, SupportsObservation)
    params = fits.MODELS[name]().init(jax.random.key(0))
    batch = {name: jnp.asarray(array) for name, array in small.batch().items()}
    seen = model.observations(params, batch, key=jax.random.key(0), train=False)
    assert {"embedding", "layers/attention.0", "layers/attention.1", "norm"} <= seen.keys()


@pytest.mark.parametrize("name", fits.SUPPORT_FAN_IN)
def test_supports_fan_in(name: str) -> None:
    assert isinstance(fits.SUPPORT_FAN_IN[name], SupportsFanIn)


@pytest.mark.parametrize("name", fits.SKIP_RULES)
def test_skip_rule(name: str) -> None:
    check_skip_rule(fits.SKIP_RULES[name]())


@pytest.mark.parametrize("name", fits.AVERAGINGS)
def test_averaging(name: str) -> None:
    optimizer = fits.AVERAGINGS[name]().around(optax.sgd(0.1), optax.constant_schedule(0.1))
    model, place = BigramModel(), SingleDevice()
    state = init_state(model, optimizer, place, seed=0)
    for name, average in averaged(state).items():
        np.testing.assert_allclose(average, state.params[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", fits.SUPPORT_FREEZING)
def test_supports_freezing_and_first_values(name: str) -> None:
    optimizer, params = fits.SUPPORT_FREEZING[name](), BigramModel().init(jax.random.key(0))
    assert isinstance(optimizer, SupportsFreezing)
    assert not optimizer.frozen_parameters
    first = fits.SUPPORT_FIRST_VALUES[name]()
    assert isinstance(first, SupportsFirstValues)
    assert first.first_values(params).keys() == params.keys()


@pytest.mark.parametrize("name", fits.OPTIMIZERS)
def test_optimizer(name: str) -> None:
    losses = train(fits.OPTIMIZERS[name]()).losses()
    assert losses[5] < losses[1]


@pytest.mark.parametrize("name", fits.SUPPORT_SPECS)
def test_supports_specs(name: str) -> None:
    maker = fits.SUPPORT_SPECS[name]()
    assert isinstance(maker, SupportsSpecs)
    losses = train(maker.for_specs(BigramModel().specs())).losses()
    assert losses[5] < losses[1]


def test_the_step_assigns_what_modules_update() -> None:
    bias = "layers/ffn/router/bias/bias"
    assert check_state_updates(small.moe_model(), small.batch()) == (bias,)
    model, optimizer = small.moe_model(), small.learner().build().for_specs(small.moe_model().specs())
    placement, batch = fits.PLACEMENTS["ax_mesh.Mesh, experts"](), small.batch()
    state = init_state(model, optimizer, placement, seed=0)
    rate, num_steps = 1e-3, 3
    with placement.activate():
        step = jax.jit(train_step(model, optimizer))
        for _ in range(num_steps):
            state, metrics = step(state, placement.put(batch))
    moved = np.asarray(state.params["layers"]["ffn"]["router"]["bias"]["bias"]) / rate
    np.testing.assert_allclose(moved, np.round(moved), atol=1e-3, err_msg="whole steps of its rate, and nothing else")
    assert np.abs(moved).max() >= 1
    assert float(metrics["layers/ffn/dropped_fraction"][0]) == 0


@pytest.mark.parametrize("name", fits.HOOKS)
def test_hook(name: str) -> None:
    assert len(train(optax.sgd(0.1), hooks=[fits.HOOKS[name]()]).losses()) == 5


@pytest.mark.parametrize("name", fits.SUPPORT_START_AND_END)
def test_hook_that_hears_of_start_and_end(name: str) -> None:
    assert isinstance(fits.HOOKS[name](), SupportsStartAndEnd)  # so that test_hook's loop tells it


@pytest.mark.parametrize("name", fits.STOP_SIGNALS)
def test_stop_signal(name: str) -> None:
    signal = fits.STOP_SIGNALS[name]()
    asked = [signal.should_stop(step) for step in range(1, 6)]
    assert asked == sorted(asked), "once true, it stays true"
    last = asked.index(True) + 1 if True in asked else 5
    assert max(train(optax.sgd(0.1), stop=fits.STOP_SIGNALS[name]()).losses()) == last


def test_a_signal_stops_the_training() -> None:
    class Terminate:
        def on_step(self, step: int, /) -> None:
            if step == 2:
                os.kill(os.getpid(), signal.SIGTERM)

    with StopOnSignals() as stop:
        assert max(train(optax.sgd(0.1), hooks=[Terminate()], stop=stop).losses()) == 2
