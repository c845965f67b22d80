"""No layer of the library is left out: each is tried, nearly all by the kits, alone or as a part, and on eight devices too."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import ax_layers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import Buildable, Config
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    CrossAttention,
    Distillation,
    Embedding,
    FurtherTokens,
    GatedFeedForward,
    Head,
    Module,
    Repeat,
    StochasticDepth,
    Wrapper,
    Zigzag,
)
from ax_layers.testing import check_layer, check_sharded
from grid import Grid

DIM, VOCAB = 8, 16
TABLES = (
    "test_layers", "test_attention_parts", "test_attention_by_shards", "test_linear_attention", "test_mla", "test_moe", "test_pipeline",
)  # fmt: skip
"""Test files with a table of ``LAYERS``, every one of which goes through ``check_layer`` there."""
IN_TESTS_OF_THEIR_OWN = ("CrossAttention", "DelayedRange", "Gated", "Int8Linear", "LoRA", "QuantisedLinear")
"""Of ``test_attention_parts``, ``test_linear_attention`` and ``test_adapters``. All through the same kit, but for ``QuantisedLinear``
and its ``DelayedRange``: rounding has no finite differences, so they are held to numpy's rounding and to formulas."""


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def block() -> Block.Config:
    return Block.Config(attention=Attention.Config(num_heads=4, head_dim=4), ffn=GatedFeedForward.Config(hidden_dim=16))


def lm() -> CausalLM.Config:
    return CausalLM.Config(dim=DIM, vocab_size=VOCAB, layers=Repeat.Config(num_layers=2, layer=block()))


def tables() -> dict[str, Buildable[Module]]:
    found = {}
    for file in TABLES:
        table = importlib.import_module(file)
        for name, config in table.LAYERS.items():
            opened = isinstance(config, Config) and "dim" in type(config).__ax_fields__ and "dim" not in config.__dict__
            found[f"{file}: {name}"] = config.clone(dim=table.DIM) if opened else config
    return found


def parts(module: Module) -> Iterator[Module]:
    yield module
    for child in [*module.children.values(), *([module.inner] if isinstance(module, Wrapper) else [])]:
        yield from parts(child)


TOKENS = jnp.asarray(np.random.default_rng(1).integers(0, VOCAB, (2, 5)), jnp.int32)
WITH_TOKENS: dict[str, Buildable[Module]] = {
    "causal language model": lm(),
    "distillation": Distillation.Config(vocab_size=VOCAB, student=lm(), teacher=lm()),
    "embedding": Embedding.Config(vocab_size=VOCAB, dim=DIM),
    "in zigzag order": Zigzag.Config(vocab_size=VOCAB, model=lm()),
}


@pytest.mark.parametrize("name", WITH_TOKENS)
def test_what_reads_tokens(name: str) -> None:
    check_layer(WITH_TOKENS[name], TOKENS)
    grid = Grid()
    check_sharded(WITH_TOKENS[name], TOKENS, sharder=grid, shardings=grid.shardings)


def test_further_tokens() -> None:
    config = FurtherTokens.Config(dim=DIM, num_tokens=2, layer=block())
    check_layer(config, normal(2, 5, DIM), normal(2, 5, DIM, seed=1), TOKENS, positions=None, segments=None)


def test_stochastic_depth() -> None:
    check_layer(StochasticDepth.Config(rate=0.5), normal(6, 3, DIM))


@pytest.mark.parametrize("name", [n for n in tables() if n.startswith(("test_layers", "test_attention_parts"))])
def test_eight_devices_give_what_one_gives(name: str) -> None:
    grid = Grid()
    dim = importlib.import_module(name.partition(":")[0]).DIM
    check_sharded(tables()[name], normal(2, 5, dim), sharder=grid, shardings=grid.shardings)


def test_none_is_left_out() -> None:
    cross = CrossAttention.Config(dim=DIM, context_dim=DIM, num_heads=2, head_dim=4)
    here = [*WITH_TOKENS.values(), FurtherTokens.Config(dim=DIM, layer=block()), StochasticDepth.Config(), cross]
    tried = {type(part) for config in [*tables().values(), *here] for part in parts(config.build())}
    public = {each for each in vars(ax_layers).values() if isinstance(each, type) and issubclass(each, Module)}
    left = {each.__name__ for each in public - tried - {Module, Wrapper, Head}} - set(IN_TESTS_OF_THEIR_OWN)
    assert not left
    assert Head in tried
    for name in IN_TESTS_OF_THEIR_OWN:
        assert hasattr(ax_layers, name)
