"""Pipelines against ``Repeat`` on one device: loss, reports and all gradients, for every schedule, alone and with other splits."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import REQUIRED, Buildable, field, partial_for
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    Dropout,
    GatedExperts,
    GatedFeedForward,
    Int8Linear,
    Linear,
    Module,
    MoE,
    Pipeline,
    Remat,
    Repeat,
    TopKRouter,
    as_decoder,
    as_model,
    functional,
    gpipe,
    int8_base,
    late_weights,
    load_balance_loss,
    lora,
    pipelined,
    scoped,
    zero_bubble,
)
from ax_layers.protocols import ArrayTree, Projection
from ax_layers.testing import check_layer
from grid import RULES, Grid

BATCH, LENGTH, DIM, VOCAB, NUM_LAYERS = 8, 6, 8, 16, 4


class Dense(Module):
    """A layer that compiles fast, with a report, an auxiliary loss and dropout."""

    class Config(ax_config.Config["Dense"]):
        dim: int = REQUIRED
        projection: Buildable[Projection] = field(default_factory=Linear.Config)
        dropout: Dropout.Config = field(default_factory=Dropout.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        square = {"in_dim": cfg.dim, "out_dim": cfg.dim}
        self.up = self.child("up", cfg.projection, **square, in_axes=("embed",), out_axes=("mlp",))
        self.down = self.child("down", cfg.projection, **square, in_axes=("mlp",), out_axes=("embed",))
        self.dropout = self.child("dropout", cfg.dropout)

    @scoped
    def __call__(
        self, x: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        y = jnp.tanh(self.up(x))
        if segments is not None:
            y = y * (1 + segments[..., None].astype(y.dtype))
        if positions is not None:
            y = y + 0.1 * positions[..., None].astype(y.dtype)
        self.summarise("mean", y.mean(), weight=y.size)
        self.output("aux_loss", 0.1 * jnp.square(y).mean())
        return x + self.dropout(self.down(y))

    def init_cache(self, *, batch_size: int, max_length: int) -> ArrayTree:
        return {"length": jnp.zeros(batch_size, jnp.int32)}

    @scoped
    def extend(self, x: jax.Array, cache: ArrayTree, /, *, positions: jax.Array) -> tuple[jax.Array, ArrayTree]:
        return self(x), {"length": positions.max(axis=1) + 1}


LAYERS: dict[str, Buildable[Module]] = {
    "pipeline": Pipeline.Config(dim=DIM, num_layers=2, layer=Dense.Config(), num_microbatches=2),
}


def test_layer() -> None:
    check_layer(LAYERS["pipeline"], jnp.asarray(np.random.default_rng(0).standard_normal((2, 3, DIM)), jnp.float32))


def block(**changes: object) -> Block.Config:
    attention = Attention.Config(num_heads=4, head_dim=4)
    return Block.Config(attention=attention, ffn=GatedFeedForward.Config(hidden_dim=16)).clone(**changes)


def lm(layer: Buildable[Any], **changes: object) -> CausalLM.Config:
    layers = Repeat.Config(num_layers=NUM_LAYERS, layer=layer)
    return CausalLM.Config(dim=DIM, vocab_size=VOCAB, layers=layers).clone(**changes)


def grid(stages: int = 2, rows: int = 2, columns: int = 2) -> Grid:
    sizes = {"stages": stages, "rows": rows, "columns": columns}
    return Grid(sizes, {**RULES, "layers": ("stages",)})


def batch(*, packed: bool = True, seed: int = 0) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)
    made = {"tokens": rng.integers(0, VOCAB, (BATCH, LENGTH)), "targets": rng.integers(-1, VOCAB, (BATCH, LENGTH))}
    if packed:
        made["segments"] = np.sort(rng.integers(0, 3, (BATCH, LENGTH)))
        made["positions"] = np.tile(np.arange(LENGTH), (BATCH, 1)) % 4
    return {name: jnp.asarray(value, jnp.int32) for name, value in made.items()}


Reports: TypeAlias = Mapping[str, tuple[jax.Array, jax.Array]]
Step: TypeAlias = tuple[jax.Array, Reports, ArrayTree]


def step(config: CausalLM.Config, given: Mapping[str, jax.Array], sharder: Grid | None = None) -> Step:
    """Loss, reports and gradients, with the parameters of one key."""
    compiled, params = prepared(config, given, sharder)
    (value, reports), gradients = compiled(params)
    return value, reports, gradients


def prepared(
    config: CausalLM.Config, given: Mapping[str, jax.Array], sharder: Grid | None
) -> tuple[jax.stages.Compiled, ArrayTree]:
    model = as_model(config.build(), sharder=sharder, per_layer=True)
    params = jax.jit(model.init)(jax.random.key(0))
    if sharder is not None:
        params = jax.device_put(params, sharder.shardings(model.specs()))

    def loss(params: ArrayTree) -> tuple[jax.Array, Reports]:
        return model.loss(params, given, key=jax.random.key(1), train=True)

    return jax.jit(jax.value_and_grad(loss, has_aux=True)).lower(params).compile(), params


def assert_same(got: Step, wanted: Step, *, tolerance: float = 1e-5) -> None:
    """But for the weights of reports other than the loss: what is reported of each microbatch weighs as much as they all do."""
    both = [
        (loss, {name: mean for name, (mean, _) in reports.items()}, grads) for loss, reports, grads in (got, wanted)
    ]
    for (path, a), (_, b) in zip(*map(jax.tree_util.tree_leaves_with_path, both), strict=True):
        where = jax.tree_util.keystr(path, simple=True, separator="/")
        largest = max(float(jnp.abs(b).max()), 1.0)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * largest, err_msg=where)
    assert got[1]["loss"][1] == wanted[1]["loss"][1]


@pytest.fixture(scope="module")
def dense() -> Step:
    return step(lm(Dense.Config()), batch())


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "one device": (1, {}),
    "gpipe, 2 stages": (2, {"schedule": gpipe}),
    "gpipe, 4 stages": (4, {"schedule": gpipe}),
    "1f1b, 2 stages": (2, {}),
    "1f1b, 4 stages": (4, {"num_microbatches": 8}),
    "interleaved": (2, {"num_chunks": 2}),
    "uneven": (2, {"layers_per_run": (3, 1)}),
    "late weights": (4, {"schedule": late_weights}),
    "late weights, uneven": (2, {"schedule": late_weights, "layers_per_run": (1, 3)}),
    "zero bubble, own branches": (4, {"schedule": zero_bubble, "lockstep": False}),
    "zero bubble, own branches, uneven": (2, {"schedule": zero_bubble, "layers_per_run": (1, 3), "lockstep": False}),
}


@functools.cache
def prepared_case(name: str) -> tuple[jax.stages.Compiled, ArrayTree]:
    stages, options = CASES[name]
    config = pipelined(lm(Dense.Config()), **{"num_microbatches": 4, **options})
    return prepared(config, batch(), None if stages == 1 else grid(stages, rows=1, columns=1))


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_gives_what_one_device_gives(name: str, dense: Step) -> None:
    compiled, params = prepared_case(name)
    (value, reports), gradients = compiled(params)
    assert_same((value, reports, gradients), dense)


def test_the_program_sends_between_neighbours_and_gathers_no_weights() -> None:
    compiled, _ = prepared_case("1f1b, 4 stages")
    program = compiled.as_text() or ""
    pairs = set(re.findall(r" collective-permute\(.*source_target_pairs=({.*?}})", program))
    assert {"{{0,1},{1,2},{2,3}}", "{{1,0},{2,1},{3,2}}"} <= {pair.replace(" ", "") for pair in pairs}
    assert "all-gather" not in program
    assert "all-to-all" not in program


def test_with_every_other_split() -> None:
    """Packed, rematerialised, and within each stage the batch and the weights split over rows, heads and widths over columns."""
    remat = Remat.Config(layer=block(), prevent_cse=False)
    config = pipelined(lm(remat, head=None), num_microbatches=2, schedule=late_weights)
    assert_same(step(config, batch(), grid()), step(lm(remat, head=None), batch()))


def test_experts() -> None:
    """Their auxiliary losses are of microbatches; one device with the same microbatches gives the same."""
    router = TopKRouter.Config(top_k=2, losses={"balance": partial_for(load_balance_loss, weight=0.1)})
    experts = MoE.Config(num_experts=4, router=router, experts=GatedExperts.Config(hidden_dim=8))
    config = pipelined(lm(block(ffn=experts)), num_microbatches=2)
    wanted = step(config, batch())
    assert wanted[1]["aux_loss"][0] > 0.01
    assert_same(step(config, batch(), grid()), wanted)


def test_random_numbers_are_of_the_layer_and_of_the_microbatch() -> None:
    config = lm(Dense.Config(dropout=Dropout.Config(rate=0.5)))
    wanted = step(pipelined(config, num_microbatches=4), batch())
    got = step(pipelined(config, num_microbatches=4, schedule=zero_bubble), batch(), grid(rows=1, columns=1))
    assert_same(got, wanted)
    pipeline = Pipeline.Config(
        dim=DIM, num_layers=1, layer=Dense.Config(dropout=Dropout.Config(rate=0.5)), num_microbatches=4
    ).build()
    same = jnp.ones((4, 1, DIM), jnp.float32)
    rows, _ = jax.jit(functional(pipeline))(pipeline.init(jax.random.key(0)), jax.random.key(1), same)
    assert len(np.unique(np.asarray(rows), axis=0)) == 4


def test_what_is_not_learnt_has_no_gradient() -> None:
    """Adapters on weights of eight bits: only the adapters' gradients are summed, and integers go through."""

    def gradients(config: CausalLM.Config) -> list[jax.Array]:
        model = as_model(lora(int8_base(config), rank=2, alpha=4.0, targets=Int8Linear).build())
        params, structure = jax.tree.flatten(model.init(jax.random.key(0)))
        learnt = [spec.trainable for spec in jax.tree.leaves(model.specs())]

        def loss(chosen: list[jax.Array]) -> jax.Array:
            values = iter(chosen)
            leaves = [next(values) if yes else param for param, yes in zip(params, learnt, strict=True)]
            tree: ArrayTree = jax.tree.unflatten(structure, leaves)
            return model.loss(tree, batch(), key=jax.random.key(1), train=True)[0]

        made: list[jax.Array] = jax.jit(jax.grad(loss))(
            [param + 0.1 for param, yes in zip(params, learnt, strict=True) if yes]
        )
        return made

    config = lm(Dense.Config())
    pairs = zip(gradients(pipelined(config, num_microbatches=2)), gradients(config), strict=True)
    for got, wanted in pairs:
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_calls_evaluation_and_decoding() -> None:
    """Where no gradients are asked for, forwards run alone; differentiated calls and decoding are as ``Repeat``'s."""
    config = lm(Dense.Config())
    models = [config.build(), pipelined(config, num_microbatches=2).build()]
    assert models[0].specs() == models[1].specs()
    params = [jax.jit(model.init)(jax.random.key(0)) for model in models]
    jax.tree.map(np.testing.assert_array_equal, *params)
    sharders = [None, grid(rows=1, columns=1)]
    placed = jax.device_put(params[0], sharders[1].shardings(models[1].specs()) if sharders[1] else None)

    def results(model: CausalLM, params: ArrayTree, sharder: Grid | None) -> Any:
        def call(params: ArrayTree) -> tuple[jax.Array, Any]:
            logits, _ = functional(model, sharder=sharder)(params, None, batch()["tokens"])
            return jnp.square(logits).mean(), as_model(model, sharder=sharder).loss(
                params, batch(), key=jax.random.key(1), train=False
            )

        return jax.jit(jax.value_and_grad(call, has_aux=True))(params)

    pairs = zip(
        *(jax.tree.leaves(results(*each)) for each in zip(models, (params[0], placed), sharders, strict=True)),
        strict=True,
    )
    for wanted, got in pairs:
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)

    decoders = [as_decoder(model) for model in models]
    tokens, lengths = batch()["tokens"][:2], jnp.asarray([3, 5], jnp.int32)
    logits = [d.prefill(params[0], tokens, lengths, d.init_cache(2, 8))[0] for d in decoders]
    np.testing.assert_allclose(logits[1], logits[0], rtol=1e-6)


def test_errors() -> None:
    pipeline = Pipeline.Config(dim=DIM, num_layers=4, layer=Dense.Config(), num_microbatches=3)
    module = pipeline.build()
    with pytest.raises(ValueError, match="a batch of 8 sequences can't be cut into 3 microbatches"):
        functional(module)(module.init(jax.random.key(0)), None, jnp.ones((8, 2, DIM)))
    with pytest.raises(ValueError, match="at least 1 microbatch and 1 chunk, got 0 and 1"):
        pipeline.clone(num_microbatches=0).build()
    with pytest.raises(ValueError, match=r"\(3, 2\) has 5 of 4"):
        pipeline.clone(layers_per_run=(3, 2)).build()
    with pytest.raises(
        ValueError, match="3 chunks, so there are a multiple of them; got 4 layers and no layers_per_run"
    ):
        pipeline.clone(num_chunks=3).build()
    for chunks, runs, wanted in (
        (4, (), "8 runs, and layers_per_run isn't given"),
        (1, (2, 1, 1), "2 runs, .* out to 3"),
    ):
        module = pipeline.clone(num_microbatches=2, num_chunks=chunks, layers_per_run=runs).build()
        with pytest.raises(
            ValueError, match=rf"4 layers are split over 2 stages, which with {chunks} chunks each have {wanted}"
        ):
            functional(module, sharder=grid())(module.init(jax.random.key(0)), None, jnp.ones((8, 2, DIM)))
