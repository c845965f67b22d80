"""The strangers' features do what they say: each against a reference, or through the kit of the seam that it fits."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import chain, config_for, modifier_for, partial_for, setting
from ax_input import ByteTokenizer, TextInput
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    DenseKVCache,
    GatedFeedForward,
    Linear,
    ParamSpec,
    Repeat,
    RMSNorm,
    as_model,
    dot_product_attention,
    functional,
    rotary,
)
from ax_layers.protocols import ArrayTree
from ax_layers.testing import check_attention_fn, check_extend, check_kv_cache, check_layer
from ax_mesh import Mesh
from ax_runtime.testing import StopAfter
from ax_trainer import Evaluator, Learner
from ax_trainer.protocols import Batch, Metrics
from ax_trainer.testing import (
    BigramModel,
    BigramParams,
    MemoryCheckpointer,
    MemorySink,
    SingleDevice,
    bigram_batches,
    check_batch_source,
    check_checkpointer,
    check_model,
)

from benchmarks.loc_worker import NUM_STEPS, VOCAB_SIZE, decode, smallest_experiment
from benchmarks.strangers import (
    attention_kind,
    checkpointer,
    fp8,
    gradient_accumulation,
    input_pipeline,
    kv_cache,
    lora,
    moe,
    norm,
    optimizer,
    qk_norm,
    rope,
    sliding_window,
    trainer,
)

X = jax.random.normal(jax.random.key(0), (2, 8, 16))
PROJECTION = {"in_dim": 16, "out_dim": (2, 4), "in_axes": ("embed",), "out_axes": ("heads", None)}


def close(got: object, wanted: object, tolerance: float = 1e-5) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), got, wanted)


# All layers


def _lm() -> CausalLM.Config:
    block = Block.Config(
        attention=Attention.Config(num_heads=2, head_dim=8), ffn=GatedFeedForward.Config(hidden_dim=32)
    )
    return CausalLM.Config(dim=16, layers=Repeat.Config(num_layers=1, layer=block))


@pytest.mark.parametrize(
    ("modify", "variant"),
    [
        (moe.modify, "8, top 2"),
        (lora.modify, "all, rank 8"),
        (fp8.modify, "e4m3 by vector"),
        (attention_kind.modify, "retention, decays by input"),
        (norm.modify, "tanh, by element"),
    ],
    ids=["moe", "lora", "fp8", "attention_kind", "norm"],
)
def test_a_mesh_changes_nothing(modify: Callable[..., CausalLM.Config], variant: str) -> None:
    module = modify(_lm(), variant=variant).build(vocab_size=32)
    tokens = np.asarray(jax.random.randint(jax.random.key(1), (8, 4), 0, 32))

    def step(sharder: Mesh) -> object:
        model = as_model(module, sharder=sharder)
        params = jax.jit(model.init, out_shardings=sharder.shardings(model.specs()))(jax.random.key(0))
        batch = sharder.put({"tokens": tokens, "targets": tokens})
        with sharder.activate():
            return jax.jit(jax.value_and_grad(lambda p: model.loss(p, batch, key=jax.random.key(2), train=True)[0]))(
                params
            )

    close(
        step(Mesh.Config(axes={"fsdp": 2, "expert": 4}).build()), step(Mesh.Config().build(devices=jax.devices()[:1]))
    )


EXACT, INT8, INT4 = (0.0, 1e-5), (1e-4, 0.03), (1e-3, 0.4)  # the least and the most that decoding may be off


@pytest.mark.parametrize(
    ("feature", "variant", "bounds"),
    [
        (attention_kind, "retention, rotary", EXACT),
        (attention_kind, "slopes, elu, by sum", EXACT),
        (fp8, "e4m3 by vector", (0.0, 0.1)),  # a number between two steps may go either way
        (kv_cache, "int8", INT8),
        (kv_cache, "int8, a ring of 16", INT8),
        (kv_cache, "int4, 4 scales", INT4),
        (lora, "all, rank 8", EXACT),
        (moe, "8, top 2", EXACT),
        (norm, "tanh", EXACT),
        (norm, "inverse root, by element, no bias", EXACT),
        (qk_norm, "layer norm", EXACT),
        (rope, "YaRN 4x", EXACT),
        (sliding_window, "16 and 4 sinks", EXACT),
    ],
    ids=lambda value: value.__name__.rpartition(".")[2] if isinstance(value, ModuleType) else None,
)
def test_what_was_trained_decodes(feature: ModuleType, variant: str, bounds: tuple[float, float]) -> None:
    modify: Callable[..., CausalLM.Config] = feature.modify
    model = modify(_lm(), variant=variant).build(vocab_size=VOCAB_SIZE)
    # Far from the first values, at which an attention does next to nothing.
    params = jax.tree.map(
        lambda x: x + 0.3 * jax.random.normal(jax.random.key(x.size), x.shape), jax.jit(model.init)(jax.random.key(0))
    )
    least, most = bounds
    assert least <= decode(model, params) <= most


def test_all_of_them_at_once(tmp_path: Path) -> None:
    everything = chain(
        modifier_for(fp8.modify, variant="e4m3"),
        modifier_for(moe.modify, variant="4, top 2"),
        modifier_for(lora.modify, variant="all, rank 8, base not frozen"),  # of the experts, too
        modifier_for(qk_norm.modify, variant="RMS"),
        modifier_for(rope.modify, variant="Llama 3.1"),
        modifier_for(sliding_window.modify, variant="16 and 4 sinks"),
        modifier_for(norm.modify, variant="tanh"),
        modifier_for(kv_cache.modify, variant="int8"),
        modifier_for(optimizer.modify, variant="cautious Lion"),
        modifier_for(gradient_accumulation.modify, variant="4"),
        modifier_for(trainer.modify, variant="averaging 0.9, skipping"),
        modifier_for(input_pipeline.modify, variant="stripes"),
        modifier_for(checkpointer.modify, variant="1 in the background"),
    )
    batches = setting(TextInput, batch_size=32)  # microbatches of eight rows, for eight devices
    config = everything(batches(smallest_experiment(tmp_path)))
    specs = jax.tree_util.tree_leaves_with_path(config.model.build(vocab_size=257).specs())
    names = {jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in specs}
    assert "layers/ffn/experts/gate/base/weight" in names
    assert "layers/attention/query_norm/gain" in names
    config.build().run(tmp_path, StopAfter(10**9))
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text("utf-8").splitlines()]
    losses = [record["loss"] for record in records if record["name"] == "train"]
    assert len(losses) == NUM_STEPS
    assert losses[-1] < losses[0]
    assert [file.name for file in (tmp_path / "checkpoints").iterdir()] == [f"{NUM_STEPS}.npz"]


# Rope


def test_plain_rope_is_that_of_ax_layers() -> None:
    x = X.reshape(2, 8, 2, 8)
    positions = jnp.array([[3, 4, 5, 6, 7, 8, 9, 10], [0, 0, 1, 2, 100, 101, 102, 1_000]])
    for at in (None, positions):
        close(rope.rope(x, positions=at), rotary(x, positions=at))


def test_interleaved_rope_turns_other_pairs() -> None:
    x = X.reshape(2, 8, 2, 8)
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    close(rope.rope(x, positions=None, interleaved=True)[..., order], rope.rope(x[..., order], positions=None))


def test_a_part_that_does_not_turn_stays() -> None:
    x = X.reshape(2, 8, 2, 8)
    turned = rope.rope(x, positions=None, fraction=0.5)
    close(turned[..., 4:], x[..., 4:])
    close(turned[..., :4], rope.rope(x[..., :4], positions=None))


def test_stretched_frequencies() -> None:
    usual = 10_000.0 ** (-jnp.arange(32, dtype=jnp.float32) / 32)
    close(rope.interpolated(usual, factor=4.0), usual / 4)
    close(rope.ntk_aware(usual, factor=4.0), (10_000.0 * 4 ** (32 / 31)) ** (-jnp.arange(32, dtype=jnp.float32) / 32))
    # Llama 3.1's, as its own code has it.
    wavelength = 2 * np.pi / np.asarray(usual)
    smooth = (8_192 / wavelength - 1) / (4 - 1)
    llama = np.where(wavelength < 8_192 / 4, usual, (1 - smooth) * np.asarray(usual) / 8 + smooth * np.asarray(usual))
    llama = np.where(wavelength > 8_192, np.asarray(usual) / 8, llama)
    close(rope.by_parts(usual, factor=8.0, length=8_192, slow=1.0, fast=4.0), llama)


# Mixture of experts


def _moe(**options: object) -> moe.MixtureOfExperts:
    config = moe.MixtureOfExperts.Config(num_experts=1, top_k=1, expert=GatedFeedForward.Config(hidden_dim=24))
    return config.clone(**options).build(dim=16)


def test_one_expert_is_the_dense_feed_forward() -> None:
    dense = GatedFeedForward.Config(hidden_dim=24).build(dim=16)
    weights = dense.init(jax.random.key(1))
    mixture = _moe()
    params = {**mixture.init(jax.random.key(2)), "experts": jax.tree.map(lambda w: w[None], weights)}
    close(functional(mixture)(params, None, X)[0], functional(dense)(weights, None, X)[0])


@pytest.mark.parametrize("gating", ["softmax", "softmax of the best", "sigmoid"])
def test_each_token_meets_its_best_experts(gating: str) -> None:
    mixture = _moe(num_experts=4, top_k=2, gating=gating)
    dense = GatedFeedForward.Config(hidden_dim=24).build(dim=16)
    params = cast("dict[str, dict[str, jax.Array]]", mixture.init(jax.random.key(2)))
    got, collected = functional(mixture)(params, None, X)
    for row, token in itertools.product(range(2), range(8)):
        x = X[row, token]
        logits = np.asarray(x @ params["router"]["weight"])
        scores = 1 / (1 + np.exp(-logits)) if gating == "sigmoid" else np.exp(logits) / np.exp(logits).sum()
        best = np.argsort(-logits)[:2]
        weights = scores[best] if gating == "softmax" else scores[best] / scores[best].sum()
        expert = [jax.tree.map(lambda w, i=i: w[i], params["experts"]) for i in best]
        outputs = [functional(dense)(w, None, x[None, None])[0][0, 0] for w in expert]
        close(got[row, token], sum(w * y for w, y in zip(weights.tolist(), outputs, strict=True)))
    close(collected.summaries["dropped"].mean, 0.0)
    assert collected.outputs["aux_loss"] > 0


def test_what_exceeds_the_capacity_is_dropped_and_counted() -> None:
    mixture = _moe(num_experts=4, top_k=1, capacity_factor=0.25)  # one of sixteen tokens an expert
    params = mixture.init(jax.random.key(2))
    y, collected = functional(mixture)(params, None, X)
    served = (jnp.abs(y).sum(axis=-1) > 0).sum()
    assert 1 <= served <= 4
    close(collected.summaries["dropped"].mean, 1 - served / 16)


def test_a_mixture_is_a_layer() -> None:
    check_layer(_moe(num_experts=3, top_k=2, shared=True), X[:, :3], tolerance=1e-3)


# Adapters


def _lora(*, frozen: bool) -> lora.LoRA:
    return lora.LoRA.Config(base=Linear.Config(), rank=3, frozen=frozen).build(**PROJECTION)


def test_an_adapter_begins_as_its_base() -> None:
    for frozen in (True, False):
        adapted = _lora(frozen=frozen)
        params = adapted.init(jax.random.key(1))
        base = Linear.Config().build(**PROJECTION)
        close(functional(adapted)(params, None, X)[0], functional(base)(cast("ArrayTree", params["base"]), None, X)[0])


def test_the_adapter_learns_and_a_frozen_base_does_not() -> None:
    for frozen in (True, False):
        adapted = _lora(frozen=frozen)

        def loss(params: ArrayTree, adapted: lora.LoRA = adapted) -> jax.Array:
            return (functional(adapted)(params, None, X)[0] ** 2).sum()

        params = jax.tree.map(lambda x: x + 0.1, adapted.init(jax.random.key(1)))
        size = jax.tree.map(lambda x: float(jnp.abs(x).max()), jax.grad(loss)(params))
        assert (size["base"]["weight"] == 0) == frozen
        assert size["down"]["weight"] > 0
        assert size["up"]["weight"] > 0
        specs = cast("Mapping[str, Mapping[str, ParamSpec]]", adapted.specs())
        decays = {name: spec["weight"].weight_decay for name, spec in specs.items()}
        assert decays == {"base": not frozen, "down": True, "up": True}


def test_an_adapter_is_a_layer() -> None:
    check_layer(_lora(frozen=False), X[:, :3], tolerance=1e-3)


# Norms of queries and keys


def _normed(variant: str) -> jax.Array:
    norm = qk_norm.VARIANTS[variant].build(dim=16)
    return functional(norm)(norm.init(jax.random.key(0)), None, X)[0]


def test_norms() -> None:
    reference = RMSNorm.Config(eps=1e-6).build(dim=16)
    close(_normed("RMS"), functional(reference)(reference.init(jax.random.key(0)), None, X)[0])
    close(_normed("RMS, gain from a half"), _normed("RMS") / 2)
    close(_normed("layer norm"), jax.nn.standardize(X, axis=-1, epsilon=1e-6))
    close(jnp.linalg.norm(_normed("cosine, gain 10"), axis=-1), jnp.full((2, 8), 10.0))


@pytest.mark.parametrize("variant", ["RMS", "RMS, one gain", "layer norm, no gain", "cosine, gain from 4"])
def test_a_norm_is_a_layer(variant: str) -> None:
    check_layer(qk_norm.VARIANTS[variant].build(dim=16), X[:, :3], tolerance=1e-3)


# Windows


@pytest.mark.parametrize(
    ("options", "sees"),
    [
        ({"span": 3}, lambda t, s: t - s < 3),
        ({"span": 3, "sinks": 2}, lambda t, s: t - s < 3 or s < 2),
        ({"span": 4, "shape": "chunk"}, lambda t, s: t // 4 == s // 4),
        ({"span": 2, "shape": "dilated", "dilation": 3}, lambda t, s: t - s in (0, 3)),
    ],
)
def test_a_window_is_a_mask(options: dict[str, int], sees: Callable[[int, int], bool]) -> None:
    query, key, value = (np.asarray(jax.random.normal(jax.random.key(i), (1, 12, 2, 4))) for i in range(3))
    got = sliding_window.near_attention(*map(jnp.asarray, (query, key, value)), scale=0.5, causal=True, **options)  # type: ignore[arg-type]  # of these types
    rows, columns = np.arange(12)[:, None], np.arange(12)[None]
    mask = np.vectorize(sees)(rows, columns) & (columns <= rows)
    logits = np.where(mask, np.einsum("btnh,bsnh->bnts", query, key) * 0.5, -np.inf)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    close(got, np.einsum("bnts,bsnh->btnh", weights / weights.sum(axis=-1, keepdims=True), value))


def test_a_window_that_holds_everything_is_attention() -> None:
    check_attention_fn(sliding_window.near_attention, length=8)


# Another kind of attention


@pytest.mark.parametrize("variant", attention_kind.VARIANTS)
def test_linear_attention_is_masked_products(variant: str) -> None:
    config = attention_kind.VARIANTS[variant].clone(num_heads=2, head_dim=4)
    layer = config.clone(position_encoding=partial_for(rotary)).build(dim=16)
    params = jax.tree.map(lambda x: x + 0.1, layer.init(jax.random.key(1)))
    weights = {name: child["weight"] for name, child in params.items() if isinstance(child, dict) and "weight" in child}
    query, key, value = (jnp.einsum("btd,dnh->btnh", X, weights[name]) for name in ("query", "key", "value"))
    if config.features is not None:
        query, key = map(config.features.build(), (query, key))
    query, key = (rotary(x, positions=None) for x in (query / 2, key))
    if config.adapts == "never":
        forgets = {"retention": np.array([2**-5, 2**-6]), "slopes": 1 - np.exp([-(2**-4), -(2**-8)])}
        log_decay = jnp.broadcast_to(np.log(1 - forgets[config.decay]) if config.decay else 0.0, (2, 8, 2))
    else:
        by_input = X @ weights["forget"] if "forget" in weights else jnp.zeros((2, 8, 2))
        log_decay = jnp.log(jax.nn.sigmoid(cast("jax.Array", params["logits"]).reshape(1, 1, 2) + by_input))
    since = jnp.cumsum(log_decay, axis=1)
    left = jnp.exp(since[:, :, None] - since[:, None]) * np.tri(8)[None, :, :, None]  # of s at t
    products = jnp.einsum("btnh,bsnh->btsn", query, key) * left
    mixed = jnp.einsum("btsn,bsnh->btnh", products, value)
    if config.norm is None:
        mixed /= products.sum(axis=2)[..., None]
    else:
        head_norm = config.norm.build(dim=4)
        mixed = functional(head_norm)(cast("ArrayTree", params["norm"]), None, mixed)[0]
    close(functional(layer)(params, None, X)[0], jnp.einsum("btnh,nhd->btd", mixed, weights["output"]), 1e-4)


def test_learnt_decays_begin_as_the_fixed_ones() -> None:
    fixed, learnt = (
        attention_kind.VARIANTS[variant].clone(num_heads=8, head_dim=4).build(dim=16)
        for variant in ("retention", "retention, learnt decays")
    )
    params = learnt.init(jax.random.key(1))
    close(functional(learnt)(params, None, X)[0], functional(fixed)(fixed.init(jax.random.key(1)), None, X)[0])
    close(jax.nn.sigmoid(cast("jax.Array", params["logits"])), 1 - 2.0 ** -np.arange(5, 13))


@pytest.mark.parametrize("variant", ["retention, rotary", "retention, decays by input", "slopes, elu, by sum"])
def test_linear_attention_is_a_layer(variant: str) -> None:
    layer = attention_kind.VARIANTS[variant].clone(num_heads=2, head_dim=4).build(dim=16)
    check_layer(layer, X[:, :3], tolerance=1e-3)
    check_extend(layer, layer.init(jax.random.key(1)), X)
    segments = jnp.array([[0, 0, 0, 1, 1, 1, 1, 1]] * 2)
    params, pure = layer.init(jax.random.key(1)), functional(layer)
    parts = [pure(params, None, X[:, at])[0] for at in (slice(0, 3), slice(3, 8))]
    positions = jnp.array([[0, 1, 2, 0, 1, 2, 3, 4]] * 2)
    close(pure(params, None, X, positions=positions, segments=segments)[0], jnp.concatenate(parts, axis=1))


def test_a_decay_that_is_not_there_does_not_adapt() -> None:
    config = attention_kind.DecayingAttention.Config(num_heads=2, head_dim=4, decay=None, adapts="by learning")
    with pytest.raises(ValueError, match="no decay that could adapt"):
        config.build(dim=16)


# Norms without statistics


@pytest.mark.parametrize(
    ("variant", "curve"),
    [
        ("tanh", lambda x: np.tanh(0.5 * x)),
        ("tanh, steep", np.tanh),
        ("tanh, by element", lambda x: np.tanh(0.5 * x)),
        ("hard tanh", lambda x: np.clip(0.5 * x, -1, 1)),
        ("soft sign", lambda x: 0.5 * x / (1 + np.abs(0.5 * x))),
        ("erf", lambda x: np.vectorize(math.erf)(0.5 * x)),
        ("inverse root", lambda x: 0.5 * x / np.sqrt(1 + 0.25 * x * x)),
    ],
)
def test_a_dynamic_norm_is_a_curve(variant: str, curve: Callable[[np.ndarray], np.ndarray]) -> None:
    layer = norm.VARIANTS[variant].build(dim=16)
    params = layer.init(jax.random.key(0))
    close(functional(layer)(params, None, X)[0], curve(np.asarray(X)))
    moved = {**params, "gain": jnp.arange(16.0), "bias": jnp.full(16, 7.0)}
    close(functional(layer)(moved, None, X)[0], curve(np.asarray(X)) * np.arange(16) + 7, 1e-4)
    assert functional(layer)(params, None, X.astype(jnp.bfloat16))[0].dtype == jnp.bfloat16


@pytest.mark.parametrize("variant", ["tanh", "inverse root, by element, no bias"])
def test_a_dynamic_norm_is_a_layer(variant: str) -> None:
    check_layer(norm.VARIANTS[variant].build(dim=16), X[:, :3], tolerance=1e-3)


# Caches of integers


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_cache_of_integers_is_off_by_half_a_step(bits: kv_cache.Bits, window: int | None) -> None:
    cache = kv_cache.QuantisedKVCache.Config(key_bits=bits, value_bits=bits, window=window).build()
    half = 0.5 / (2 ** (bits - 1) - 1)
    check_kv_cache(cache, keeps=window, error=half * 1.001)
    with pytest.raises(AssertionError, match="written was"):
        check_kv_cache(cache, keeps=window, error=half / 2)


def test_integers_come_back_and_bytes_are_saved() -> None:
    dense = sum(leaf.nbytes for leaf in jax.tree.leaves(_state(DenseKVCache.Config().build())))
    sizes: tuple[tuple[kv_cache.Bits, float], ...] = ((8, 0.3), (4, 0.2))
    for bits, share in sizes:
        limit = 2 ** (bits - 1) - 1
        integers = np.random.default_rng(0).integers(-limit, limit + 1, (2, 3, 4, 16)).astype(np.float32)
        integers[..., ::4] = limit  # in each of the pieces
        close(kv_cache.exact(kv_cache.quantised(jnp.asarray(integers), bits, 4, jnp.float32), bits), integers)
        cache = kv_cache.QuantisedKVCache.Config(key_bits=bits, value_bits=bits).build()
        assert sum(leaf.nbytes for leaf in jax.tree.leaves(_state(cache))) < share * dense


def _state(cache: DenseKVCache | kv_cache.QuantisedKVCache) -> object:
    return cache.init(batch_size=2, max_length=8, num_kv_heads=2, head_dim=64, dtype=jnp.float32)


def test_a_ring_is_no_shorter_than_what_attention_sees() -> None:
    short = setting(Attention, kv_cache=kv_cache.VARIANTS["int8, a ring of 16"])
    with pytest.raises(ValueError, match="keeps 16 positions, but the attention sees everything"):
        short(_lm()).build(vocab_size=32)


@pytest.mark.parametrize("variant", kv_cache.VARIANTS)
def test_attention_to_rounded_keys_and_values_is_within_its_bound(variant: str) -> None:
    """Logits off by at most δ make weights off by a factor of at most exp(2δ), and rounded values are off by half a step."""
    config = kv_cache.VARIANTS[variant]
    query, key, value = (jax.random.normal(jax.random.key(i), (2, 8, 2, 16)) for i in range(3))
    cache = config.build()
    positions = jnp.tile(jnp.arange(8, dtype=jnp.int32), (2, 1))
    state = cache.init(batch_size=2, max_length=8, num_kv_heads=2, head_dim=16, dtype=jnp.float32)
    for at in (slice(0, 5), *(slice(i, i + 1) for i in range(5, 8))):
        state, keys, values, held = cache.update(state, key[:, at], value[:, at], positions[:, at])
    last, options = query[:, 7:], {"query_positions": positions[:, 7:], "scale": 0.25, "causal": True}
    got = dot_product_attention(last, keys, values, key_positions=held, **options)  # type: ignore[arg-type]  # of these types
    wanted = dot_product_attention(last, key, value, key_positions=positions, **options)  # type: ignore[arg-type]  # of these types

    def half_steps(x: jax.Array, bits: int) -> np.ndarray:
        pieces = np.abs(np.asarray(x)).reshape(*x.shape[:-1], config.num_scales, -1)
        steps = pieces.max(axis=-1, keepdims=True) / (2 ** (bits - 1) - 1)
        return np.broadcast_to(steps / 2, pieces.shape).reshape(x.shape)

    delta = 0.25 * (np.abs(last) * half_steps(key, config.key_bits)).sum(axis=-1).max(axis=1)  # [B, N]
    bound = half_steps(value, config.value_bits).max(axis=(1, 3)) + np.expm1(2 * delta) * np.abs(value).max(axis=(1, 3))
    off = np.abs(np.asarray(got - wanted)).max(axis=(1, 3))
    assert (off <= bound + 1e-6).all()
    assert off.max() > 1e-4


# Optimizers


def test_lion_is_optax_lion_and_caution_leaves_steps_out() -> None:
    params = {"w": X}
    ours, theirs, cautious = (
        optimizer.scale_by_cautious_lion(cautious=False),
        optax.scale_by_lion(b1=0.9, b2=0.99),
        optimizer.scale_by_cautious_lion(),
    )
    states = [rule.init(params) for rule in (ours, theirs, cautious)]
    for i in range(3):
        gradients = {"w": jax.random.normal(jax.random.key(i), X.shape)}
        updates = []
        for j, rule in enumerate((ours, theirs, cautious)):
            update, states[j] = rule.update(gradients, states[j], params)
            updates.append(update["w"])
        close(updates[0], updates[1])
        against = updates[0] * gradients["w"] <= 0
        assert bool((updates[2] == 0)[against].all())
        assert bool((updates[2] != 0)[~against].all())


# Accumulation


def _bigram(dropout: float = 0.0) -> tuple[BigramModel, Mapping[str, np.ndarray]]:
    batch = {name: np.array(x) for name, x in next(iter(bigram_batches(1, batch_size=8))).items()}
    batch["targets"][1:4, :5] = -1  # microbatches differ in how many targets they have
    return BigramModel(dropout=dropout), batch


@pytest.mark.parametrize("num_microbatches", [2, 4, 8])
def test_microbatches_give_the_step_of_the_whole_batch(num_microbatches: int) -> None:
    model, batch = _bigram()
    cut = gradient_accumulation.Accumulated(model, num_microbatches, "float32", "by target", 1)
    params, key = model.init(jax.random.key(0)), jax.random.key(1)
    step = jax.value_and_grad(lambda m, p: m.loss(p, batch, key=key, train=True), argnums=1, has_aux=True)
    close(step(cut, params), step(model, params))


def test_an_accumulated_model_is_a_model() -> None:
    model, batch = _bigram(dropout=0.1)
    check_model(gradient_accumulation.Accumulated(model, 4, "float32", "by target", 1), batch)


def test_rows_that_do_not_divide_are_refused() -> None:
    model, batch = _bigram()
    cut = gradient_accumulation.Accumulated(model, 3, "float32", "by target", 1)
    with pytest.raises(ValueError, match="a batch of 8 rows can't be cut into 3"):
        cut.loss(model.init(jax.random.key(0)), batch, key=jax.random.key(1), train=True)  # type: ignore[arg-type]


# Rounded numbers


@pytest.mark.parametrize(("format", "bits"), [("float8_e4m3fn", 3), ("float8_e5m2", 2)])
@pytest.mark.parametrize("scaling", ["tensor", "vector", "block of 32"])
def test_rounding_is_as_exact_as_the_format(format: fp8.Format, bits: int, scaling: fp8.Scaling) -> None:
    x = jax.random.uniform(jax.random.key(0), (64, 5), minval=0.1, maxval=10.0)
    off = jnp.abs(fp8.rounded(x, format, scaling) - x) / x
    assert 2.0 ** -(bits + 3) < off.max() <= 2.0 ** -(bits + 1) * 1.001
    close(jax.grad(lambda x: (fp8.rounded(x, format, scaling) ** 2).sum())(x), 2 * fp8.rounded(x, format, scaling))


def test_a_scale_a_vector_keeps_small_vectors() -> None:
    x = jnp.ones((32, 2)) * jnp.array([[1e-6, 1.0]])
    assert float(fp8.rounded(x, "float8_e4m3fn", "tensor")[0, 0]) == 0.0
    close(fp8.rounded(x, "float8_e4m3fn", "vector") / x, jnp.ones_like(x))


def test_a_quantised_projection_is_near_the_exact_one() -> None:
    exact = Linear.Config().build(**PROJECTION)
    for config in fp8.VARIANTS.values():
        quantised = config.build(**PROJECTION)
        params = quantised.init(jax.random.key(1))
        got, wanted = (functional(layer)(params, None, X)[0] for layer in (quantised, exact))
        assert jnp.linalg.norm(got.astype(jnp.float32) - wanted) < 0.12 * jnp.linalg.norm(wanted)


def test_gradients_are_rounded_on_their_way_back() -> None:
    weights = jnp.array([1.0, 1.1, 1.9, 2.0])
    gradient = jax.grad(lambda x: (fp8.with_rounded_gradient(x) * weights).sum())(jnp.zeros(4))
    close(gradient, jnp.array([1.0, 1.0, 2.0, 2.0]), 0.15)
    assert not np.allclose(gradient, weights)


# Input


@pytest.mark.parametrize("order", ["random", "in a row", "a stripe a row"])
def test_windows_are_of_the_text_and_go_on_where_they_were(order: str) -> None:
    config = input_pipeline.WindowInput.Config(seq_length=16, batch_size=4, holdout_fraction=0.1)
    pipeline = config.clone(order=order).build(tokenizer=ByteTokenizer())
    check_batch_source(pipeline.train)
    text = b"".join(file.read_bytes() for file in sorted(Path(json.__file__).parent.rglob("*.py")))
    batch = next(pipeline.train())
    for row, targets in zip(batch["tokens"], batch["targets"], strict=True):
        if max(row) < 256:  # no document ends in it
            assert bytes(row.tolist()) in text
        assert list(row[1:]) == list(targets[:-1])
    assert pipeline.batch_shape == (4, 16)
    assert 0.99 < pipeline.bytes_per_token <= 1
    held_out = pipeline.validation(max_batches=2)
    assert len(held_out) == 2
    assert len(pipeline.validation()) > 2


# Checkpoints


@pytest.mark.parametrize("variant", ["10", "3 in the background, compressed"])
def test_states_come_back(variant: str, tmp_path: Path) -> None:
    check_checkpointer(lambda: checkpointer.VARIANTS[variant].build(folder=tmp_path))


def test_old_states_go(tmp_path: Path) -> None:
    store = checkpointer.NpzCheckpointer.Config(keep_last=2, keep_every=4).build(folder=tmp_path)
    for step in range(1, 9):
        store.save(step, {"x": X}, {})
    assert sorted(int(file.stem) for file in tmp_path.iterdir()) == [4, 7, 8]
    assert store.restore_part(7, {"x": jax.ShapeDtypeStruct(X.shape, X.dtype)})["x"].shape == X.shape


# The trainer


class Batches:
    """Batch after batch, one of them broken; its state is the number given."""

    def __init__(self, *, broken: int | None = None) -> None:
        batches = itertools.islice(bigram_batches(8, batch_size=8), 8)
        self.all = [{**batch, "factor": _factors(i == broken)} for i, batch in enumerate(batches)]
        self._at = 0

    def __next__(self) -> Mapping[str, np.ndarray]:
        self._at += 1
        return self.all[self._at - 1]

    def get_state(self) -> bytes:
        return str(self._at).encode()

    def set_state(self, state: bytes, /) -> None:
        self._at = int(state)


def _factors(broken: bool) -> np.ndarray:
    return np.full(8, np.nan if broken else 1.0, np.float32)


class Scaled(BigramModel):
    """Its loss is multiplied by a factor that comes with the batch."""

    def loss(self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool) -> tuple[jax.Array, Metrics]:
        loss, metrics = super().loss(params, batch, key=key, train=train)
        return loss * batch["factor"].mean(), metrics


def _train(store: MemoryCheckpointer, batches: Batches, *, num_steps: int, **options: object) -> MemorySink:
    learner = Learner.Config(schedule=config_for(optax.constant_schedule)(1e-2), clip_norm=1.0)
    sink = MemorySink()
    small_trainer = trainer.SmallTrainer.Config(optimizer=learner).clone(**options)
    loop = small_trainer.build(
        num_steps=num_steps,
        model=Scaled(),
        partitioner=SingleDevice(),
        batches=batches,
        evaluators={"validation": Evaluator(lambda: [Batches().all[7]])},
        checkpointer=store,
        sinks=[sink],
        hooks=(),
        stop=StopAfter(10**9),
        derive={},
    )
    assert loop.run().step == num_steps
    return sink


@pytest.mark.parametrize("options", [{}, {"average": 0.9, "skip_broken": True}])
def test_a_run_goes_on_as_if_it_had_not_stopped(options: dict[str, object]) -> None:
    whole, parts = MemoryCheckpointer(), MemoryCheckpointer()
    losses = _train(whole, Batches(), num_steps=6, **options).history("train")
    first = _train(parts, Batches(), num_steps=3, **options).history("train")
    second = _train(parts, Batches(), num_steps=6, **options).history("train")
    assert losses == {**first, **second}
    assert losses[6] < losses[1]
    close(whole.steps[6][0], parts.steps[6][0], 0.0)


def test_a_broken_step_is_stepped_over() -> None:
    for skip_broken in (False, True):
        store = MemoryCheckpointer()
        losses = _train(store, Batches(broken=1), num_steps=3, skip_broken=skip_broken).history("train")
        assert np.isfinite(losses[3]) == skip_broken
        params = cast("trainer.State", store.steps[3][0]).params
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)) == skip_broken
