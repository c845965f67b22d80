"""What calls returned, by name and in order: the same numbers whatever runs the layers, and nothing when nobody observes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import REQUIRED, replace
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    GatedFeedForward,
    Linear,
    Module,
    Remat,
    Repeat,
    as_model,
    functional,
    pipelined,
    scoped,
)
from ax_layers.protocols import ArrayTree

NUM_LAYERS, DIM, VOCAB = 2, 8, 16
BATCH = {
    "tokens": jnp.arange(24, dtype=jnp.int32).reshape(4, 6) % VOCAB,
    "targets": jnp.arange(1, 25, dtype=jnp.int32).reshape(4, 6) % VOCAB,
}


def language_model() -> CausalLM.Config:
    block = Block.Config(attention=Attention.Config(num_heads=2, head_dim=4), ffn=GatedFeedForward.Config(hidden_dim=8))
    return CausalLM.Config(dim=DIM, vocab_size=VOCAB, layers=Repeat.Config(num_layers=NUM_LAYERS, layer=block))


def observed(config: CausalLM.Config) -> dict[str, np.ndarray]:
    model = as_model(config.build())
    params = jax.jit(model.init)(jax.random.key(0))
    return model.observations(params, BATCH, key=jax.random.key(1), train=True)


def rematerialised(config: CausalLM.Config) -> CausalLM.Config:
    return replace(config, Block, lambda block: Remat.Config(layer=block))


def in_a_pipeline(config: CausalLM.Config) -> CausalLM.Config:
    return pipelined(config, num_microbatches=2)


def test_results_are_those_of_the_calls_in_the_order_of_computation() -> None:
    model = as_model(language_model().build())
    params = jax.jit(model.init)(jax.random.key(0))
    found = model.observations(params, BATCH, key=jax.random.key(1), train=True)
    names = list(found)
    parts = [
        "layers/attention_norm",
        "layers/attention/query",
        "layers/attention",
        "layers/ffn/up",
        "layers/ffn",
        "layers",
    ]
    wanted = ["embedding", *(f"{part}.{i}" for i in range(NUM_LAYERS) for part in parts), "norm"]
    assert [name for name in names if name in wanted] == wanted
    assert names[-1].startswith(".loss()")

    module = cast("CausalLM", model.module)
    x: jax.Array = functional(module.embedding)(cast("ArrayTree", params["embedding"]), None, BATCH["tokens"])[0]
    np.testing.assert_allclose(found["embedding"], x, atol=1e-6)
    block = cast("Repeat", module.layers).inner
    for i in range(NUM_LAYERS):
        one: ArrayTree = jax.tree.map(lambda leaf, i=i: leaf[i], params["layers"])
        x = functional(cast("Callable[[jax.Array], jax.Array]", block))(one, None, x)[0]
        np.testing.assert_allclose(found[f"layers.{i}"], x, atol=1e-5)


@pytest.mark.parametrize("modifier", [rematerialised, in_a_pipeline])
def test_names_and_numbers_are_the_same_however_layers_are_run(
    modifier: Callable[[CausalLM.Config], CausalLM.Config],
) -> None:
    wanted, found = observed(language_model()), observed(modifier(language_model()))
    # A pipeline computes the loss, and what only it needs, for each microbatch.
    assert {name for name in wanted if not name.startswith(("head", "cross_entropy", ".loss"))} <= set(found)
    for name in wanted.keys() & found.keys():
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-5, err_msg=name)


class Twice(Module):
    """One child, called two times; it returns two arrays."""

    class Config(ax_config.Config["Twice"]):
        dim: int = REQUIRED

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        square = {"in_dim": cfg.dim, "out_dim": cfg.dim, "in_axes": (None,), "out_axes": (None,)}
        self.linear = self.child("linear", Linear.Config(), **square)

    @scoped
    def loss(
        self, batch: Mapping[str, jax.Array], /, *, train: bool
    ) -> tuple[jax.Array, dict[str, tuple[jax.Array, jax.Array]]]:
        assert train
        y = self.linear(self.linear(batch["x"]))
        return y.sum(), {"loss": (y.sum(), jnp.ones(()))}


def test_a_module_that_is_called_again_is_told_apart() -> None:
    model = as_model(Twice.Config(dim=4).build())
    params = jax.jit(model.init)(jax.random.key(0))
    x = jnp.ones((2, 4))
    found = model.observations(params, {"x": x}, key=jax.random.key(1), train=True)
    weight = cast("dict[str, jax.Array]", params["linear"])["weight"]
    np.testing.assert_allclose(found["linear"], x @ weight, atol=1e-6)
    np.testing.assert_allclose(found["linear#2"], x @ weight @ weight, atol=1e-6)
    assert list(found)[:2] == ["linear", "linear#2"]
    assert found[".loss()[0]"] == pytest.approx(float((x @ weight @ weight).sum()), rel=1e-5)


def test_nobody_pays_who_does_not_observe() -> None:
    module = language_model().build()
    params = jax.jit(module.init)(jax.random.key(0))
    _, collected = functional(module.loss)(params, None, BATCH, train=True)
    assert collected.results == {}
