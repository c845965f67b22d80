"""Attention split along the sequence gives on eight devices what one gives, and sends what it says and no more."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import Buildable, partial_for, role, setting
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    GatedFeedForward,
    GatheredAttention,
    Module,
    PartialDotProduct,
    Repeat,
    RingAttention,
    UlyssesAttention,
    Zigzag,
    as_decoder,
    as_model,
    dot_product_attention,
    functional,
    initializers,
    masks,
    scoped,
)
from ax_layers.protocols import AttentionFn, Sharder
from ax_layers.testing import check_attention_fn, check_layer, check_partial_attention, check_sharded
from grid import Grid

DIM, VOCAB, LENGTH = 8, 16, 16
WAYS: Mapping[str, Buildable[Module]] = {
    "gathered": GatheredAttention.Config(),
    "ring": RingAttention.Config(),
    "ulysses": UlyssesAttention.Config(),
}
LAYERS: dict[str, Buildable[Module]] = {
    name: Attention.Config(dim=DIM, num_heads=4, num_kv_heads=2, head_dim=4, attention_fn=cast("Any", way))
    for name, way in WAYS.items()
}

Options: TypeAlias = dict[str, Any]


def split_four_ways() -> Grid:
    """The sequence over two axes of the mesh at once, and the batch over the third."""
    rules = {"batch": ("rows",), "seq": ("columns", "depth")}
    return Grid({"rows": 2, "columns": 2, "depth": 2}, rules)


def split_every_way() -> Grid:
    """Batch, sequence and heads over an axis each."""
    rules = {"batch": ("rows",), "seq": ("columns",), "heads": ("depth",), "kv_heads": ("depth",)}
    return Grid({"rows": 2, "columns": 2, "depth": 2}, rules)


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def bound(way: Buildable[Module], sharder: Sharder | None = None) -> AttentionFn:
    """The attention function that a module is, on these devices."""
    pure = functional(cast("Callable[..., jax.Array]", way.build()), sharder=sharder)

    def attend(*arrays: jax.Array, **options: object) -> jax.Array:
        return pure({}, None, *arrays, **options)[0]

    return cast("AttentionFn", attend)


def problem(num_heads: int = 4, num_kv_heads: int = 4, batch: int = 2) -> tuple[jax.Array, jax.Array, jax.Array]:
    keys = (batch, LENGTH, num_kv_heads, 4)
    return normal(batch, LENGTH, num_heads, 4), normal(*keys, seed=1), normal(*keys, seed=2)


def rows(of_first: list[int], of_second: list[int]) -> jax.Array:
    return jnp.asarray([of_first, of_second], jnp.int32)


DOCUMENTS = rows([0] * 3 + [1] * 9 + [2] * 4, [0] * 8 + [1] * 8)
RESTARTED = rows([*range(3), *range(9), *range(4)], [*range(8), *range(8)])
SHUFFLED = rows(*(np.random.default_rng(seed).permutation(LENGTH).tolist() for seed in (3, 4)))

CASES: Mapping[str, tuple[tuple[int, int], Options]] = {
    "plain": ((4, 4), {}),
    "packed": ((4, 4), {"segments": DOCUMENTS}),
    "packed, positions": ((4, 2), {"segments": DOCUMENTS, "positions": RESTARTED}),
    "window": ((4, 2), {"window": 5}),
    "cap, one key head": ((4, 1), {"logit_cap": 1.5}),
    "shuffled positions, window, cap": ((8, 4), {"positions": SHUFFLED, "window": 6, "logit_cap": 1.5}),
    "not causal": ((4, 2), {"causal": False}),
}


def with_gradients(attend: AttentionFn, arrays: tuple[jax.Array, ...], options: Options) -> object:
    options = {"causal": True, **options}
    for name in ("positions", "segments"):
        if name in options:
            options |= dict.fromkeys((f"query_{name}", f"key_{name}"), options.pop(name))

    @jax.jit
    def run(*arrays: jax.Array) -> object:
        out, pull_back = jax.vjp(lambda q, k, v: attend(q, k, v, scale=0.4, **options), *arrays)
        return out, pull_back(normal(*out.shape, seed=9))

    return run(*arrays)


@functools.cache
def on_one_device(case: str) -> object:
    heads, options = CASES[case]
    return with_gradients(dot_product_attention, problem(*heads), options)


EVERY_WAY = ("packed, positions", "shuffled positions, window, cap")


@pytest.mark.parametrize(
    ("grid", "case"), [*((split_four_ways, case) for case in CASES), *((split_every_way, case) for case in EVERY_WAY)]
)
@pytest.mark.parametrize("way", WAYS)
def test_eight_devices_give_what_one_gives(way: str, grid: Callable[[], Grid], case: str) -> None:
    heads, options = CASES[case]
    got = with_gradients(bound(WAYS[way], grid()), problem(*heads), options)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5), got, on_one_device(case))


@pytest.mark.parametrize("way", WAYS)
def test_any_attention_on_one_device(way: str) -> None:
    check_attention_fn(bound(WAYS[way]), length=8, gradients=False)


def test_parts_of_keys_put_together() -> None:
    check_partial_attention(PartialDotProduct.Config().build())


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    check_layer(LAYERS[name], normal(2, 4, DIM))


def test_a_layer_in_a_ring() -> None:
    grid = split_every_way()
    check_sharded(LAYERS["ring"], normal(2, 8, DIM), sharder=grid, shardings=grid.shardings)


@pytest.mark.parametrize("num_kv_heads", [1, 3, 6])
def test_key_heads_that_are_not_split_as_query_heads_are(num_kv_heads: int) -> None:
    """Twelve query heads over four devices, three on each: of one key head, of one or two, and of two."""
    grid = Grid({"rows": 2, "columns": 4}, {"seq": ("rows",), "heads": ("columns",)})
    arrays = problem(12, num_kv_heads)
    got = with_gradients(bound(WAYS["ring"], grid), arrays, {})
    wanted = with_gradients(dot_product_attention, arrays, {})
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5), got, wanted)


def sent(way: str, grid: Grid) -> dict[str, int]:
    """The most elements that one operation of each kind sends, forward and backward."""
    attend = bound(WAYS[way], grid)

    @jax.jit
    def run(*arrays: jax.Array) -> object:
        placed = (grid.constrain(x, ("batch", "seq", "heads", None)) for x in arrays)
        return jax.grad(lambda *a: attend(*a, scale=0.4, causal=True).sum(), argnums=(0, 1, 2))(*placed)

    text = run.lower(*problem(8, 4)).compile().as_text() or ""
    kinds = "all-gather|all-to-all|collective-permute|reduce-scatter|all-reduce"
    most: dict[str, int] = {}
    for shapes, kind in re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", text):
        for dims in re.findall(r"\[([\d,]*)\]", shapes):
            most[kind] = max(most.get(kind, 0), int(np.prod([int(dim) for dim in dims.split(",") if dim], dtype=int)))
    return most


def test_what_is_sent() -> None:
    grid = split_four_ways()
    keys = 1 * (LENGTH // 4) * 4 * 4  # of a device: its sequence, its rows, all heads
    ring, ulysses, gathered = sent("ring", grid), sent("ulysses", grid), sent("gathered", grid)
    assert ring["collective-permute"] == keys
    assert max(size for kind, size in ring.items() if kind != "collective-permute") == 4  # spans of shards
    assert {*ulysses} == {"all-to-all"}
    assert gathered == {"all-gather": 4 * keys, "reduce-scatter": keys}


class Counting:
    """Fits ``PartialAttention``, and counts how often it is asked."""

    class Config(ax_config.Config["Counting"]):
        pass

    def __init__(self, cfg: Config, /) -> None:
        self.inner = PartialDotProduct.Config().build()
        self.asked = {"forward": 0, "backward": 0}

    def _count(self, half: str) -> None:
        def add() -> None:
            self.asked[half] += 1

        jax.debug.callback(add)

    def forward(self, *arrays: jax.Array, **options: Any) -> tuple[jax.Array, jax.Array]:
        self._count("forward")
        return self.inner.forward(*arrays, **options)

    def backward(self, *arrays: jax.Array, **options: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        self._count("backward")
        return self.inner.backward(*arrays, **options)


@pytest.mark.parametrize(
    ("options", "visits"),
    [({}, 10), ({"causal": False}, 16), ({"window": 4}, 7), ({"window": 5}, 7), ({"window": 6}, 9)],
)
def test_a_ring_visits_only_what_can_be_seen(options: Options, visits: int) -> None:
    grid = Grid({"rows": 2, "columns": 4}, {"batch": ("rows",), "seq": ("columns",)})
    ring = RingAttention.Config(part=cast("Any", Counting.Config())).build()
    pure = functional(ring, sharder=grid)
    with_gradients(lambda *a, **o: pure({}, None, *a, **o)[0], problem(), options)
    jax.effects_barrier()
    assert cast("Counting", ring.part).asked == {"forward": 2 * visits, "backward": 2 * visits}


def lm(way: str) -> CausalLM.Config:
    attention = Attention.Config(num_heads=4, num_kv_heads=2, head_dim=4)
    block = Block.Config(attention=attention, ffn=GatedFeedForward.Config(hidden_dim=16))
    config = CausalLM.Config(dim=DIM, layers=Repeat.Config(num_layers=2, layer=block))
    return setting(Attention, attention_fn=WAYS[way])(config)


TOKENS = jnp.asarray(np.random.default_rng(5).integers(0, VOCAB, (2, LENGTH)), jnp.int32)


def test_the_loss_is_the_same_in_zigzag_order() -> None:
    targets = jnp.roll(TOKENS, -1, axis=1).at[:, 3].set(-1)
    batch = {"tokens": TOKENS, "targets": targets, "segments": DOCUMENTS, "positions": RESTARTED}
    plain = as_model(lm("ring").build(vocab_size=VOCAB))
    zigzag = as_model(Zigzag.Config(model=lm("ring")).build(vocab_size=VOCAB), sharder=split_every_way())
    params = jax.jit(plain.init)(jax.random.key(0))
    # As it is drawn, an embedding is so small that the norm behind it magnifies rounding.
    params = {**params, "embedding": jax.tree.map(lambda x: 20 * x, params["embedding"])}

    def run(model: Any) -> object:
        def loss(params: object) -> object:
            return model.loss(params, batch, key=jax.random.key(1), train=False)

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)

    for got, wanted in zip(jax.tree.leaves(run(zigzag)), jax.tree.leaves(run(plain)), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5, rtol=1e-5)


class Told(Module):
    """Fits ``PositionEmbedding``, and hands out the positions that it is told."""

    class Config(ax_config.Config["Told"]):
        dim: int = ax_config.REQUIRED

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()

    @scoped
    def __call__(self, x: jax.Array, /, *, positions: jax.Array | None = None) -> jax.Array:
        assert positions is not None
        self.output("positions", positions)
        return x


def test_zigzag_evens_out_the_work() -> None:
    told = lm("gathered").clone(position_embedding=Told.Config())
    zigzag = Zigzag.Config(model=told).build(vocab_size=VOCAB)
    pure = functional(zigzag.loss, sharder=split_four_ways())
    params, batch = jax.jit(zigzag.init)(jax.random.key(0)), {"tokens": TOKENS, "targets": TOKENS}
    _, collected = jax.jit(lambda params: pure(params, None, batch, train=True))(params)
    positions = np.asarray(collected.outputs["position_embedding/positions"])
    np.testing.assert_array_equal(np.sort(positions, axis=1), np.tile(np.arange(LENGTH), (2, 1)))

    def visible_blocks(order: np.ndarray, size: int = 2) -> list[int]:
        """Of each of four devices: how many blocks of its queries times blocks of all keys hold a visible pair."""
        blocks = order.reshape(-1, size)
        sees = blocks.max(axis=1)[:, None] >= blocks.min(axis=1)[None]
        return [int(count) for count in sees.sum(axis=1).reshape(4, -1).sum(axis=1)]

    assert visible_blocks(np.arange(LENGTH)) == [3, 7, 11, 15]
    assert visible_blocks(positions[0]) == [9, 9, 9, 9]


def test_zigzag_wants_pairs_of_pieces() -> None:
    grid = split_four_ways()
    zigzag = as_model(Zigzag.Config(model=lm("ring")).build(vocab_size=VOCAB), sharder=grid)
    batch = {"tokens": TOKENS[:, :12], "targets": TOKENS[:, :12]}
    with pytest.raises(ValueError, match=r"4 devices, but 12 rows don't make 8 equal pieces"):
        zigzag.loss({}, batch, key=jax.random.key(1), train=True)


def test_what_decodes_is_the_model() -> None:
    plain = lm("ring").build(vocab_size=VOCAB)
    zigzag = Zigzag.Config(model=lm("gathered")).build(vocab_size=VOCAB)
    params = jax.jit(plain.init)(jax.random.key(0))
    whole, got = (jax.jit(lambda p, m=m: functional(m)(p, None, TOKENS[:, :6])[0])(params) for m in (plain, zigzag))
    np.testing.assert_allclose(got, whole, atol=1e-5)
    decoder = as_decoder(zigzag)
    cache = decoder.init_cache(2, 8)
    logits, cache = jax.jit(decoder.prefill)(params, TOKENS[:, :5], jnp.asarray([5, 5], jnp.int32), cache)
    np.testing.assert_allclose(logits, whole[:, 4], atol=1e-5)
    logits, _ = jax.jit(decoder.decode)(params, TOKENS[:, 5], cache)
    np.testing.assert_allclose(logits, whole[:, 5], atol=1e-5)


def test_refusals() -> None:
    chunks = cast("Attention.Config", LAYERS["ring"]).clone(mask=partial_for(masks.chunked, size=3))
    with pytest.raises(ValueError, match="takes no mask"):
        chunks.build()
    with pytest.raises(ValueError, match="takes no sinks"):
        cast("Attention.Config", LAYERS["ulysses"]).clone(sinks=partial_for(initializers.normal)).build()
    with pytest.raises(ValueError, match="2 over 4 doesn't go"):
        bound(WAYS["ulysses"], split_four_ways())(*problem(2, 2), scale=1.0, causal=True)
    with pytest.raises(ValueError, match="together; only one was given"):
        bound(WAYS["gathered"])(*problem(), scale=1.0, causal=True, query_segments=DOCUMENTS)


def test_a_way_goes_around_any_attention_function() -> None:
    config = lm("gathered")
    around = ax_config.replacing(role("attention_fn"), lambda inner: UlyssesAttention.Config(inner=cast("Any", inner)))
    attention = cast("Any", around(config)).layers.layer.attention.build(dim=DIM)
    assert isinstance(attention.attention_fn, UlyssesAttention)
    assert isinstance(attention.attention_fn.inner, GatheredAttention)
