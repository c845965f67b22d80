"""Multi-head latent attention, against its equations in numpy."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import partial_for
from ax_layers import (
    Block,
    GatedFeedForward,
    LatentAttention,
    Linear,
    LowRankProjection,
    Repeat,
    functional,
    no_positions,
    rotary,
)
from ax_layers.protocols import ArrayTree
from ax_layers.testing import check_extend, check_layer, check_sharded
from grid import Grid

DIM = 8


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def attention() -> LatentAttention.Config:
    return LatentAttention.Config(num_heads=4, head_dim=6, rotary_dim=2, value_dim=4, latent_dim=5)


def wide_values() -> LatentAttention.Config:
    """Values wider than keys, an odd cache, and queries of low rank."""
    query = LowRankProjection.Config(rank=3)
    return LatentAttention.Config(num_heads=4, head_dim=2, rotary_dim=2, value_dim=7, latent_dim=6, query=query)


LAYERS = {
    "plain": attention(),
    "wide values, low-rank queries": wide_values(),
    "scaled, no positions": attention().clone(scale=0.7, position_encoding=partial_for(no_positions)),
    "in blocks": Repeat.Config(
        num_layers=2, layer=Block.Config(attention=attention(), ffn=GatedFeedForward.Config(hidden_dim=12))
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    check_layer(LAYERS[name].clone(dim=DIM), normal(2, 5, DIM))


@pytest.mark.parametrize("name", LAYERS)
def test_piece_by_piece_equals_at_once(name: str) -> None:
    module = LAYERS[name].clone(dim=DIM).build()
    assert isinstance(module, LatentAttention | Repeat)
    check_extend(module, jax.jit(module.init)(jax.random.key(0)), normal(3, 8, DIM))


@pytest.mark.parametrize("name", ["plain", "wide values, low-rank queries"])
def test_eight_devices_give_what_one_gives(name: str) -> None:
    grid = Grid()
    check_sharded(LAYERS[name].clone(dim=DIM), normal(2, 5, DIM), sharder=grid, shardings=grid.shardings)


def test_it_is_attention_with_keys_and_values_from_the_latents() -> None:
    module = attention().clone(dim=DIM).build()
    params = cast("dict[str, Any]", jax.jit(module.init)(jax.random.key(0)))
    params["latent_norm"]["scale"] = normal(5, seed=1)
    x = normal(2, 5, DIM)
    positions = np.asarray([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]], np.int32)
    segments = np.asarray([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], np.int32)
    out, _ = functional(module)(params, None, x, positions=jnp.asarray(positions), segments=jnp.asarray(segments))

    weights = {name: np.asarray(params[name]["weight"]) for name in ("query", "down", "up", "output")}
    query = np.einsum("btd,dnh->btnh", x, weights["query"])
    down = np.asarray(x) @ weights["down"]
    latent = down[..., :5] / np.sqrt((down[..., :5] ** 2).mean(-1, keepdims=True) + 1e-5)
    both = np.einsum("btc,cnh->btnh", latent * np.asarray(params["latent_norm"]["scale"]), weights["up"])
    turned = [
        np.asarray(rotary(jnp.asarray(x), positions=jnp.asarray(positions)))
        for x in (query[..., 6:], down[:, :, None, 5:])
    ]
    query = np.concatenate([query[..., :6], turned[0]], -1)
    key = np.concatenate([both[..., :6], np.broadcast_to(turned[1], (2, 5, 4, 2))], -1)
    logits = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(8)
    sees = (positions[:, None, :] <= positions[:, :, None]) & (segments[:, None, :] == segments[:, :, None])
    powers = np.where(sees[:, None], np.exp(logits), 0)
    context = np.einsum("bnts,bsnh->btnh", powers / powers.sum(-1, keepdims=True), both[..., 6:])
    np.testing.assert_allclose(out, np.einsum("btnh,nhd->btd", context, weights["output"]), rtol=1e-4, atol=1e-5)


def test_the_cache_holds_latents_and_one_key_for_all_heads() -> None:
    def numbers(config: LatentAttention.Config) -> int:
        cache = config.clone(dim=DIM).build().init_cache(batch_size=1, max_length=1)
        return sum(x.size for x in jax.tree.leaves(cache) if jnp.issubdtype(x.dtype, jnp.floating))

    assert (
        numbers(LatentAttention.Config(num_heads=128, head_dim=128, rotary_dim=64, value_dim=128, latent_dim=512))
        == 576
    )
    assert numbers(attention()) == 8  # 5 + 2, made even


def test_one_token_is_read_without_making_keys_and_values_of_what_is_cached() -> None:
    """By the shapes that it computes: none has the cached positions and the heads' keys or values."""
    module = attention().clone(dim=DIM).build()
    params = jax.jit(module.init)(jax.random.key(0))
    cache = module.init_cache(batch_size=1, max_length=33)
    call = functional(module.extend)

    def num_expanded(length: int) -> int:
        positions = jnp.arange(length, dtype=jnp.int32)[None]
        jaxpr = jax.make_jaxpr(lambda x: call(params, None, x, cache, positions=positions))(normal(1, length, DIM))
        shapes = [v.aval.shape for eqn in jaxpr.jaxpr.eqns for v in eqn.outvars]
        return sum(33 in shape and 4 in shape and shape[-1] in (6, 10) for shape in shapes)

    assert num_expanded(1) == 0
    assert num_expanded(2) > 0, "several tokens are"


def test_narrow_types_all_through() -> None:
    narrow = Linear.Config(compute_dtype="bfloat16")
    config = attention().clone(dim=DIM, query=narrow, down=narrow, up=narrow, output=narrow, cache_dtype="bfloat16")
    module = config.build()
    params = jax.jit(module.init)(jax.random.key(0))
    x, positions = normal(1, 3, DIM).astype(jnp.bfloat16), jnp.arange(3, dtype=jnp.int32)[None]
    whole, _ = jax.jit(functional(module))(params, None, x)
    extend = jax.jit(functional(module.extend))
    cache: ArrayTree = module.init_cache(batch_size=1, max_length=3)
    (first, cache), _ = extend(params, None, x[:, :2], cache, positions=positions[:, :2])
    (last, _), _ = extend(params, None, x[:, 2:], cache, positions=positions[:, 2:])
    pieces = jnp.concatenate([first, last], axis=1)
    assert whole.dtype == pieces.dtype == jnp.bfloat16
    np.testing.assert_allclose(pieces.astype(jnp.float32), whole.astype(jnp.float32), atol=3e-2)


def test_flops() -> None:
    weights = DIM * 4 * 8 + DIM * 7 + 5 * 4 * 10 + 4 * 4 * DIM
    assert attention().clone(dim=DIM).build().training_flops_per_token(10) == 6 * weights + 6 * 4 * (8 + 4) * 10


def test_a_low_rank_projection_is_two_with_a_norm_between() -> None:
    module = LowRankProjection.Config(rank=3, in_dim=DIM, out_dim=(2, 4), in_axes=("embed",), out_axes=("heads", None))
    params = cast("dict[str, Any]", jax.jit(module.build().init)(jax.random.key(0)))
    x = normal(2, 3, DIM)
    inner = np.asarray(x) @ np.asarray(params["down"]["weight"])
    inner = inner / np.sqrt((inner**2).mean(-1, keepdims=True) + 1e-5)
    out, _ = functional(module.build())(params, None, x)
    np.testing.assert_allclose(out, np.einsum("btr,rnh->btnh", inner, params["up"]["weight"]), rtol=1e-4, atol=1e-5)
    check_layer(module, x)
