"""Each layer by the kit that strangers use too, and against formulas written in numpy."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import Buildable, partial_for
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    DenseKVCache,
    Dropout,
    Embedding,
    FusedQKV,
    GatedFeedForward,
    Head,
    Linear,
    Module,
    Remat,
    Repeat,
    RMSNorm,
    Unsharded,
    cross_entropy,
    dot_product_attention,
    functional,
    initializers,
    no_positions,
    rotary,
)
from ax_layers.protocols import ArrayTree
from ax_layers.testing import (
    check_attention_fn,
    check_cross_entropy_fn,
    check_extend,
    check_kv_cache,
    check_layer,
    check_sharder,
)
from grid import Grid

DIM = 8


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def attention() -> Attention.Config:
    return Attention.Config(num_heads=4, num_kv_heads=2, head_dim=4)


def block() -> Block.Config:
    return Block.Config(attention=attention(), ffn=GatedFeedForward.Config(hidden_dim=12))


LAYERS: dict[str, Buildable[Module]] = {
    "linear": Linear.Config(in_dim=DIM, out_dim=5, in_axes=("embed",), out_axes=("mlp",), use_bias=True),
    "norm": RMSNorm.Config(dim=DIM),
    "feed-forward": GatedFeedForward.Config(dim=DIM, hidden_dim=12),
    "dropout": Dropout.Config(rate=0.3),
    "attention": attention().clone(dim=DIM),
    "attention, window and cap": attention().clone(dim=DIM, window=2, logit_cap=2.0),
    "attention, normalised": attention().clone(dim=DIM, qk_norm=RMSNorm.Config(), num_kv_heads=None),
    "attention, no positions": attention().clone(dim=DIM, position_encoding=partial_for(no_positions)),
    "attention, fused": attention().clone(dim=DIM, qkv=FusedQKV.Config()),
    "block": block().clone(dim=DIM),
    "block, dropout": block().clone(dim=DIM, dropout=Dropout.Config(rate=0.5)),
    "repeat": Repeat.Config(dim=DIM, num_layers=3, layer=block()),
    "remat": Remat.Config(dim=DIM, layer=block(), save=("query", "ffn_up"), save_matmuls=True),
    "repeated remat": Repeat.Config(dim=DIM, num_layers=2, layer=Remat.Config(layer=block(), prevent_cse=False)),
    "remat of repeat": Remat.Config(dim=DIM, layer=Repeat.Config(num_layers=2, layer=block(), unroll=2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    check_layer(LAYERS[name], normal(2, 5, DIM))


def test_embedding_and_head() -> None:
    tokens = jnp.asarray([[0, 3, 2], [1, 1, 4]], jnp.int32)
    check_layer(Embedding.Config(vocab_size=5, dim=DIM), tokens)
    embedding, head = Embedding.Config(vocab_size=5, dim=DIM).build(), Head.Config(vocab_size=5, dim=DIM).build()
    x = normal(2, DIM)
    for module in (embedding, head):
        params = jax.jit(module.init)(jax.random.key(0))
        weight = np.asarray(params["weight"])
        logits, _ = functional(module.attend)(params, None, x)
        np.testing.assert_allclose(logits, np.asarray(x) @ weight.T, rtol=1e-5, atol=1e-6)
    vectors, _ = functional(embedding)(
        jax.jit(embedding.init)(jax.random.key(0)), None, jnp.asarray([[1, 5]], jnp.int32)
    )
    assert bool(jnp.isfinite(vectors[0, 0]).all())
    assert bool(jnp.isnan(vectors[0, 1]).all()), "a token outside the vocabulary shows"


def test_a_split_vocabulary_is_looked_up_where_it_is() -> None:
    """Vectors travel, rows don't; and a token outside the vocabulary shows there too."""
    grid, module = Grid(), Embedding.Config(vocab_size=64, dim=DIM).build()
    params = module.init(jax.random.key(0))
    tokens = jnp.array([[0, 64, 63], [-1, 17, 5]])
    placed = jax.device_put(params, grid.shardings(module.specs()))

    def run(params: ArrayTree) -> jax.Array:
        return functional(module, sharder=grid)(params, None, tokens)[0]

    compiled = jax.jit(run).lower(placed).compile()
    np.testing.assert_array_equal(compiled(placed), functional(module)(params, None, tokens)[0])
    gathered = re.findall(r"f32\[(\d+),\d+\]\S* all-gather", compiled.as_text() or "")
    assert "64" not in gathered, "the whole vocabulary's rows are gathered"


def test_causal_lm_passes_the_layer_kit() -> None:
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 11, (2, 5)), jnp.int32)
    layers = Repeat.Config(num_layers=2, layer=block())
    check_layer(CausalLM.Config(vocab_size=11, dim=DIM, layers=layers, head=None, logit_cap=3.0), tokens)


@pytest.mark.parametrize("name", [n for n in LAYERS if n.startswith(("attention", "block", "repeat", "remat"))])
def test_piece_by_piece_equals_at_once(name: str) -> None:
    module = LAYERS[name].build()
    assert isinstance(module, Attention | Block | Repeat | Remat)
    check_extend(module, jax.jit(module.init)(jax.random.key(0)), normal(3, 8, DIM))


def test_attention_fn() -> None:
    check_attention_fn(dot_product_attention)


def test_cross_entropy_fn() -> None:
    check_cross_entropy_fn(cross_entropy)


def test_kv_cache() -> None:
    check_kv_cache(DenseKVCache.Config().build())


def test_dense_cache_drops_what_is_beyond_its_length() -> None:
    cache = DenseKVCache.Config().build()
    state = cache.init(batch_size=1, max_length=2, num_kv_heads=1, head_dim=1, dtype=jnp.float32)
    _, _, _, positions = cache.update(
        state, normal(1, 3, 1, 1), normal(1, 3, 1, 1), jnp.asarray([[0, 1, 2]], jnp.int32)
    )
    assert positions.tolist() == [[0, 1]]


def test_sharder() -> None:
    check_sharder(Unsharded())


def test_rms_norm_closed_form() -> None:
    module = RMSNorm.Config(dim=DIM, eps=1e-3).build()
    x, scale = np.asarray(normal(2, 3, DIM)), np.asarray(normal(DIM, seed=1))
    out, _ = functional(module)({"scale": jnp.asarray(scale)}, None, jnp.asarray(x))
    np.testing.assert_allclose(out, x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * scale, rtol=1e-5)
    narrow, _ = functional(module)({"scale": jnp.asarray(scale)}, None, jnp.asarray(x, jnp.bfloat16))
    assert narrow.dtype == jnp.bfloat16


def test_rotary_is_a_rotation_by_position() -> None:
    x = np.asarray(normal(2, 5, 3, 6))
    positions = np.asarray([[0, 1, 2, 3, 4], [7, 0, 1, -1, 100]], np.int32)
    turned = (x[..., :3] + 1j * x[..., 3:]) * np.exp(
        1j * positions[:, :, None, None] * 10_000.0 ** (-2 * np.arange(3) / 6)
    )
    wanted = np.concatenate([turned.real, turned.imag], axis=-1)
    out = rotary(jnp.asarray(x), positions=jnp.asarray(positions))
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rotary(jnp.asarray(x), positions=None)[0], wanted[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="even; got 5"):
        rotary(normal(1, 1, 1, 5), positions=None)


def test_rotary_scores_depend_on_distance_alone() -> None:
    query, key = normal(1, 1, 1, 8), normal(1, 1, 1, 8, seed=1)

    def score(at: int, to: int) -> float:
        turned = [rotary(x, positions=jnp.asarray([[p]], jnp.int32)) for x, p in ((query, at), (key, to))]
        return float((turned[0] * turned[1]).sum())

    assert score(9, 4) == pytest.approx(score(105, 100), rel=1e-4)
    assert score(9, 4) != pytest.approx(score(9, 5), rel=1e-2)


def test_linear_over_several_dims() -> None:
    module = Linear.Config(in_dim=(2, 3), out_dim=(4, 5), in_axes=("heads", None), out_axes=("a", "b")).build()
    assert module.weight.spec.axes == ("heads", None, "a", "b")
    x, weight = normal(7, 2, 3), normal(2, 3, 4, 5, seed=1)
    out, _ = functional(module)({"weight": weight}, None, x)
    np.testing.assert_allclose(out, np.einsum("xab,abcd->xcd", x, weight), rtol=1e-5, atol=1e-5)
    assert module.training_flops_per_token(100) == 6 * 2 * 3 * 4 * 5


def test_initial_values_have_the_size_that_is_asked() -> None:
    module = Linear.Config(in_dim=(8, 32), out_dim=512, in_axes=(None, None), out_axes=(None,)).build()
    weight = np.asarray(jax.jit(module.init)(jax.random.key(0))["weight"])
    assert weight.std() == pytest.approx(1 / 16, rel=2e-2)
    key, kind = jax.random.key(0), (64, 64)
    assert np.asarray(initializers.normal(key, kind, "float32", fan_in=1, std=0.5)).std() == pytest.approx(
        0.5, rel=5e-2
    )
    assert np.asarray(initializers.constant(key, kind, "float32", fan_in=1, value=3.0)).tolist()[0][0] == 3.0
    assert not np.asarray(initializers.zeros(key, kind, "float32", fan_in=1)).any()


def test_dropout_keeps_the_mean_and_needs_a_key() -> None:
    module = Dropout.Config(rate=0.25).build()
    x = jnp.ones((100, 100), jnp.float32)
    out, _ = functional(module)({}, jax.random.key(0), x)
    assert float(out.mean()) == pytest.approx(1, abs=0.03)
    assert float((out == 0).mean()) == pytest.approx(0.25, abs=0.02)
    assert functional(module)({}, None, x)[0] is x
    with pytest.raises(ValueError, match="below 1, got 1"):
        Dropout.Config(rate=1.0).build()


def test_precision_is_what_the_config_says() -> None:
    half = {"param_dtype": "float32", "compute_dtype": "bfloat16"}
    module = Linear.Config(in_dim=4, out_dim=4, in_axes=(None,), out_axes=(None,), **half).build()  # type: ignore[arg-type]
    params = jax.jit(module.init)(jax.random.key(0))
    assert functional(module)(params, None, normal(2, 4))[0].dtype == jnp.bfloat16
    head = Head.Config(vocab_size=5, dim=4, compute_dtype="bfloat16", param_dtype="bfloat16").build()
    params = jax.jit(head.init)(jax.random.key(0))
    assert params["weight"].dtype == jnp.bfloat16
    assert functional(head.attend)(params, None, normal(2, 4))[0].dtype == jnp.float32
    with pytest.raises(ValueError, match="'float3' is no type for"):
        RMSNorm.Config(dim=4, param_dtype="float3").build()


def test_what_a_remat_may_not_be_told() -> None:
    with pytest.raises(ValueError, match=r"both to save and to offload \['key'\]"):
        Remat.Config(dim=DIM, layer=block(), save=("key",), offload=("key",)).build()
    with pytest.raises(ValueError, match="num_layers of at least 1"):
        Repeat.Config(dim=DIM, num_layers=0, layer=block()).build()
