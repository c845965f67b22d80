"""Masks, biases, sinks, positions, norms, blocks and caches: by the kit, and against formulas written in numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import Buildable, partial_for
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    CrossAttention,
    FeedForward,
    Identity,
    LayerNorm,
    LearnedPositions,
    Linear,
    Module,
    NormalisedProjection,
    ParallelBlock,
    Repeat,
    RMSNorm,
    SinusoidalPositions,
    SlidingKVCache,
    Stack,
    alibi,
    as_decoder,
    dot_product_attention,
    functional,
    initializers,
    linear_scaling,
    masks,
    ntk_scaling,
    relu_squared,
    rotary,
)
from ax_layers.protocols import AttentionMask, SequenceLayer
from ax_layers.testing import check_attention_options, check_extend, check_kv_cache, check_layer

DIM = 8


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def attention() -> Attention.Config:
    return Attention.Config(num_heads=4, num_kv_heads=2, head_dim=4)


def feed_forward() -> FeedForward.Config:
    biased = Linear.Config(use_bias=True)
    return FeedForward.Config(hidden_dim=12, activation=partial_for(relu_squared), up=biased, down=biased)


def block() -> Block.Config:
    return Block.Config(attention=attention(), ffn=feed_forward())


def hybrid() -> Stack.Config:
    near = block().clone(attention=attention().clone(window=2, kv_cache=SlidingKVCache.Config(window=2)))
    pattern = Stack.Config(layers={"near": Repeat.Config(num_layers=2, layer=near), "far": block()})
    return Stack.Config(layers={"patterns": Repeat.Config(num_layers=2, layer=pattern), "last": near})


def prefix_mask(length: int) -> Buildable[AttentionMask]:
    return partial_for(masks.any_of, masks=(partial_for(masks.causal), partial_for(masks.prefix, length=length)))


SEQUENCE_LAYERS: dict[str, Buildable[Module]] = {
    "attention, chunks": attention().clone(dim=DIM, mask=partial_for(masks.chunked, size=3)),
    "attention, ALiBi": attention().clone(dim=DIM, bias=partial_for(alibi)),
    "attention, sinks": attention().clone(dim=DIM, sinks=partial_for(initializers.normal, std=1.0)),
    "attention, ring cache": attention().clone(dim=DIM, window=3, kv_cache=SlidingKVCache.Config(window=3)),
    "attention, another scale": attention().clone(dim=DIM, scale=0.7),
    "attention, whole queries and keys normalised": attention().clone(
        dim=DIM, query=NormalisedProjection.Config(), key=NormalisedProjection.Config()
    ),
    "block, norms after": block().clone(dim=DIM, norm=Identity.Config(), output_norm=RMSNorm.Config()),
    "block, norms around": block().clone(dim=DIM, output_norm=RMSNorm.Config(unit_offset=True)),
    "parallel block": ParallelBlock.Config(dim=DIM, attention=attention(), ffn=feed_forward()),
    "hybrid": hybrid().clone(dim=DIM),
}
LAYERS: dict[str, Buildable[Module]] = {
    **SEQUENCE_LAYERS,
    "attention, prefix": attention().clone(dim=DIM, causal=False, mask=prefix_mask(3)),
    "layer norm": LayerNorm.Config(dim=DIM),
    "layer norm, no bias": LayerNorm.Config(dim=DIM, use_bias=False),
    "feed-forward": feed_forward().clone(dim=DIM),
    "learned positions": LearnedPositions.Config(dim=DIM, max_length=5),
    "sinusoidal positions": SinusoidalPositions.Config(dim=DIM),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    check_layer(LAYERS[name], normal(2, 5, DIM))


@pytest.mark.parametrize("name", SEQUENCE_LAYERS)
def test_piece_by_piece_equals_at_once(name: str) -> None:
    module = SEQUENCE_LAYERS[name].build()
    check_extend(as_sequence_layer(module), jax.jit(module.init)(jax.random.key(0)), normal(3, 8, DIM))


def as_sequence_layer(module: Module) -> SequenceLayer:
    assert isinstance(module, Attention | Block | ParallelBlock | Stack)
    return module


def test_cross_attention() -> None:
    config = CrossAttention.Config(
        dim=DIM, context_dim=6, num_heads=4, num_kv_heads=2, head_dim=4, qk_norm=RMSNorm.Config()
    )
    x, context = normal(2, 5, DIM), normal(2, 3, 6, seed=1)
    positions = jnp.asarray([[0, 1, 2], [0, 1, -1]], jnp.int32)
    check_layer(config, x, context, context_positions=positions)
    module = config.build()
    params = jax.jit(module.init)(jax.random.key(0))
    whole, _ = functional(module)(params, None, x, context, context_positions=positions)
    memory, _ = functional(module.remember)(params, None, context, context_positions=positions)
    for t in range(5):
        row, _ = functional(module.recall)(params, None, x[:, t : t + 1], memory)
        np.testing.assert_allclose(row, whole[:, t : t + 1], rtol=1e-5, atol=1e-6)
    changed, _ = functional(module)(params, None, x, context.at[1, 2].set(9.0), context_positions=positions)
    np.testing.assert_array_equal(changed, whole, err_msg="padding is seen")
    with pytest.raises(ValueError, match="multiple of num_kv_heads, got 4 and 3"):
        config.clone(num_kv_heads=3).build()


# Masks


AT = np.arange(7)
DISTANCE = AT[:, None] - AT[None, :]


@pytest.mark.parametrize(
    ("mask", "sees"),
    [
        (partial_for(masks.causal), DISTANCE >= 0),
        (partial_for(masks.sliding, window=2), abs(DISTANCE) < 2),
        (partial_for(masks.chunked, size=3), AT[:, None] // 3 == AT[None, :] // 3),
        (partial_for(masks.prefix, length=2), np.broadcast_to(AT[None, :] < 2, (7, 7))),
        (prefix_mask(2), (DISTANCE >= 0) | (AT[None, :] < 2)),
        (
            partial_for(masks.all_of, masks=(partial_for(masks.causal), partial_for(masks.chunked, size=3))),
            (DISTANCE >= 0) & (AT[:, None] // 3 == AT[None, :] // 3),
        ),
        (partial_for(masks.all_of), np.ones((7, 7), bool)),
        (partial_for(masks.any_of), np.zeros((7, 7), bool)),
    ],
)
def test_mask(mask: Buildable[AttentionMask], sees: np.ndarray) -> None:
    at = jnp.asarray(AT, jnp.int32)[None]
    got = mask.build()(at[:, :, None], at[:, None, :])
    np.testing.assert_array_equal(jnp.broadcast_to(got, (1, 7, 7))[0], sees)
    query, key, value = (normal(1, 7, 2, 4, seed=seed) for seed in range(3))
    out = dot_product_attention(query, key, value, scale=0.5, causal=False, mask=mask.build())
    np.testing.assert_allclose(out, by_hand(query, key, value, sees=sees), rtol=1e-4, atol=1e-5)


def by_hand(
    query: jax.Array, key: jax.Array, value: jax.Array, *, sees: np.ndarray, bias: object = 0.0, sinks: object = None
) -> np.ndarray:
    """Attention of one batch row, ``sees`` ``[T, S]``, ``bias`` ``[N, T, S]``, ``sinks`` ``[N]``, scale 0.5."""
    logits = np.einsum("btnh,bsnh->bnts", query, key).astype(np.float64) * 0.5 + np.asarray(bias)
    odds = np.exp(logits) * sees
    total = odds.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(np.asarray(sinks))[None, :, None, None]
    weights = np.divide(odds, total, out=np.zeros_like(odds), where=total > 0)
    out: np.ndarray = np.einsum("bnts,bsnh->btnh", weights, value)
    return out


def test_options_together_and_with_grouped_heads() -> None:
    query, key, value = normal(1, 7, 4, 4), normal(1, 7, 2, 4, seed=1), normal(1, 7, 2, 4, seed=2)
    sinks = normal(4, seed=3)
    at = jnp.asarray(AT, jnp.int32)[None]
    bias = alibi(at[:, :, None], at[:, None, :], num_heads=4)
    out = dot_product_attention(
        query,
        key,
        value,
        scale=0.5,
        causal=True,
        mask=partial_for(masks.chunked, size=3).build(),
        bias=alibi,
        sinks=sinks,
    )
    sees = (DISTANCE >= 0) & (AT[:, None] // 3 == AT[None, :] // 3)
    whole = [jnp.repeat(x, 2, axis=2) for x in (key, value)]
    np.testing.assert_allclose(
        out, by_hand(query, whole[0], whole[1], sees=sees, bias=bias[0], sinks=sinks), rtol=1e-4, atol=1e-5
    )


def test_values_may_be_narrower_than_keys() -> None:
    query, key, value = normal(1, 7, 2, 4), normal(1, 7, 2, 4, seed=1), normal(1, 7, 2, 3, seed=2)
    out = dot_product_attention(query, key, value, scale=0.5, causal=True)
    np.testing.assert_allclose(out, by_hand(query, key, value, sees=DISTANCE >= 0), rtol=1e-4, atol=1e-5)


def test_alibi_is_linear_with_the_published_slopes() -> None:
    at = jnp.asarray([[0, 3]], jnp.int32)
    slopes = -np.asarray(alibi(at[:, :, None], at[:, None, :], num_heads=8))[0, :, 1, 0] / 3
    np.testing.assert_allclose(slopes, 2.0 ** -np.arange(1, 9))
    slopes = -np.asarray(alibi(at[:, :, None], at[:, None, :], num_heads=6))[0, :, 1, 0] / 3
    np.testing.assert_allclose(slopes, 2.0 ** -np.asarray([2, 4, 6, 8, 1, 3]))


def narrow(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    /,
    *,
    scale: float,
    causal: bool,
    window: int | None = None,
    logit_cap: float | None = None,
    query_positions: jax.Array | None = None,
    key_positions: jax.Array | None = None,
    query_segments: jax.Array | None = None,
    key_segments: jax.Array | None = None,
) -> jax.Array:
    """An attention function that knows no option."""
    return query


def test_a_function_without_the_option_is_refused_when_the_layer_is_built() -> None:
    plain = attention().clone(dim=DIM, attention_fn=partial_for(narrow))
    plain.build()
    with pytest.raises(ValueError, match=r"narrow.* takes no mask and no sinks"):
        plain.clone(mask=partial_for(masks.causal), sinks=partial_for(initializers.zeros)).build()


def test_the_default_takes_every_option() -> None:
    check_attention_options(dot_product_attention)


# Positions


def test_partial_rotary_turns_the_first_part_alone() -> None:
    x = normal(2, 5, 3, 8)
    out = rotary(x, positions=None, fraction=0.5)
    np.testing.assert_array_equal(out[..., 4:], x[..., 4:])
    np.testing.assert_array_equal(out[..., :4], rotary(x[..., :4], positions=None))


def test_rotary_at_half_the_speed_is_rotary_at_half_the_position() -> None:
    x = normal(1, 4, 2, 6)
    at = jnp.asarray([[0, 2, 4, 20]], jnp.int32)
    scaled = rotary(x, positions=at, scaling=partial(linear_scaling, factor=2.0), magnitude=3.0)
    np.testing.assert_allclose(scaled, 3 * rotary(x, positions=at // 2), rtol=1e-4, atol=1e-5)


def test_ntk_scaling_is_a_larger_theta() -> None:
    x, at = normal(1, 4, 2, 8), jnp.asarray([[0, 1, 50, 300]], jnp.int32)
    scaled = rotary(x, positions=at, scaling=partial(ntk_scaling, factor=4.0))
    np.testing.assert_allclose(scaled, rotary(x, positions=at, theta=10_000.0 * 4 ** (8 / 6)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("positions", [None, [[0, 1, 2], [4, 0, 3]]])
def test_added_positions(positions: list[list[int]] | None) -> None:
    x, weight = normal(2, 3, 4), normal(5, 4, seed=1)
    at = None if positions is None else jnp.asarray(positions, jnp.int32)
    steps = np.broadcast_to(np.arange(3), (2, 3)) if positions is None else np.asarray(positions)
    out, _ = functional(LearnedPositions.Config(dim=4, max_length=5).build())({"weight": weight}, None, x, positions=at)
    np.testing.assert_allclose(out, x + np.asarray(weight)[steps], rtol=1e-6)
    out, _ = functional(SinusoidalPositions.Config(dim=4).build())({}, None, x, positions=at)
    angles = steps[..., None] / 10_000.0 ** (np.arange(2) / 2)
    np.testing.assert_allclose(out, x + np.concatenate([np.sin(angles), np.cos(angles)], -1), rtol=1e-5, atol=1e-6)


def test_a_position_beyond_those_learnt_shows() -> None:
    module = LearnedPositions.Config(dim=4, max_length=2).build()
    out, _ = functional(module)({"weight": normal(2, 4)}, None, normal(1, 3, 4))
    assert bool(jnp.isfinite(out[:, :2]).all())
    assert bool(jnp.isnan(out[:, 2]).all())


# Norms


def test_layer_norm_closed_form() -> None:
    x, scale, bias = (np.asarray(normal(*shape, seed=seed)) for seed, shape in enumerate([(2, 3, DIM), (DIM,), (DIM,)]))
    params = {"scale": jnp.asarray(scale), "bias": jnp.asarray(bias)}
    out, _ = functional(LayerNorm.Config(dim=DIM, eps=1e-3).build())(params, None, jnp.asarray(x))
    wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * scale + bias
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


def test_a_unit_offset_starts_at_zero_and_changes_nothing_else() -> None:
    x, offset = normal(2, DIM), normal(DIM, seed=1)
    module = RMSNorm.Config(dim=DIM, unit_offset=True).build()
    assert not np.asarray(module.init(jax.random.key(0))["scale"]).any()
    out, _ = functional(module)({"scale": offset}, None, x)
    wanted, _ = functional(RMSNorm.Config(dim=DIM).build())({"scale": 1 + offset}, None, x)
    np.testing.assert_allclose(out, wanted, rtol=1e-6)


def test_a_whole_projection_is_one_vector_to_its_norm() -> None:
    module = NormalisedProjection.Config(norm=RMSNorm.Config(eps=0.0)).build(
        in_dim=DIM, out_dim=(2, 3), in_axes=("embed",), out_axes=("heads", None)
    )
    out, _ = functional(module)(jax.jit(module.init)(jax.random.key(0)), None, normal(5, DIM))
    np.testing.assert_allclose(jnp.square(out).mean(axis=(1, 2)), np.ones(5), rtol=1e-5)


# Caches and stacks


@pytest.mark.parametrize("window", [2, 5, 16, 100])
def test_ring_cache(window: int) -> None:
    check_kv_cache(SlidingKVCache.Config(window=window).build(), keeps=window)


def test_a_ring_cache_keeps_the_latest_whatever_the_order_of_rows() -> None:
    cache = SlidingKVCache.Config(window=4).build()
    state = cache.init(batch_size=1, max_length=8, num_kv_heads=1, head_dim=1, dtype=jnp.float32)
    backwards = jnp.asarray([[5, 4, 3, 2, 1, 0]], jnp.int32)
    state, _, _, seen = cache.update(state, normal(1, 6, 1, 1), normal(1, 6, 1, 1), backwards)
    assert sorted(seen[0].tolist()) == [-1, -1, -1, -1, 0, 1, 2, 3, 4, 5], "all that came is seen once"
    assert sorted(state["positions"][0].tolist()) == [2, 3, 4, 5]


@pytest.mark.parametrize("window", [None, 5])
def test_attention_refuses_a_cache_that_forgets_what_it_sees(window: int | None) -> None:
    forgetful = attention().clone(dim=DIM, window=window, kv_cache=SlidingKVCache.Config(window=4))
    with pytest.raises(ValueError, match=r"keeps 4 positions, but the attention sees (everything|5 positions)"):
        forgetful.build()


def test_a_ring_cache_is_no_longer_than_its_window_or_the_text() -> None:
    state = (
        SlidingKVCache.Config(window=4)
        .build()
        .init(batch_size=1, max_length=100, num_kv_heads=1, head_dim=1, dtype=jnp.float32)
    )
    assert state["positions"].shape == (1, 4)
    state = (
        SlidingKVCache.Config(window=4)
        .build()
        .init(batch_size=1, max_length=3, num_kv_heads=1, head_dim=1, dtype=jnp.float32)
    )
    assert state["positions"].shape == (1, 3)


def test_a_stack_is_its_layers_in_order() -> None:
    stack = Stack.Config(dim=DIM, layers={"first": block(), "second": attention()}).build()
    params, x = jax.jit(stack.init)(jax.random.key(0)), normal(2, 5, DIM)
    first, second = block().build(dim=DIM), attention().build(dim=DIM)
    wanted = functional(second)(
        subtree(params, "second"), None, functional(first)(subtree(params, "first"), None, x)[0]
    )
    np.testing.assert_allclose(functional(stack)(params, None, x)[0], wanted[0], rtol=1e-5, atol=1e-6)
    assert hybrid().build(dim=DIM).training_flops_per_token(4) == 5 * block().build(dim=DIM).training_flops_per_token(
        4
    ) + 2 * block().build(dim=DIM).training_flops_per_token(4)
    with pytest.raises(ValueError, match="at least one layer"):
        Stack.Config(dim=DIM, layers={}).build()


def subtree(params: object, name: str) -> dict[str, jax.Array]:
    assert isinstance(params, dict)
    child = params[name]
    assert isinstance(child, dict)
    return child


# The model


@pytest.mark.parametrize("make", [lambda: LearnedPositions.Config(max_length=8), lambda: SinusoidalPositions.Config()])
def test_a_model_that_adds_positions_decodes(make: Callable[[], LearnedPositions.Config]) -> None:
    config = CausalLM.Config(
        vocab_size=11, dim=DIM, layers=block(), position_embedding=make(), logit_scale=0.5, logit_cap=3.0
    )
    module = config.build()
    params = jax.jit(module.init)(jax.random.key(0))
    tokens = jnp.asarray([[1, 2, 3, 4], [5, 6, 7, 8]], jnp.int32)
    whole, _ = functional(module)(params, None, tokens)
    decoder = as_decoder(module)
    logits, cache = decoder.prefill(params, tokens[:, :3], jnp.asarray([3, 2], jnp.int32), decoder.init_cache(2, 4))
    np.testing.assert_allclose(logits, jnp.stack([whole[0, 2], whole[1, 1]]), rtol=1e-5, atol=1e-5)
    logits, _ = decoder.decode(params, jnp.asarray([4, 7], jnp.int32), cache)
    np.testing.assert_allclose(logits, jnp.stack([whole[0, 3], whole[1, 2]]), rtol=1e-5, atol=1e-5)


def test_scale_of_logits_comes_before_the_cap_and_is_in_the_loss() -> None:
    config = CausalLM.Config(vocab_size=11, dim=DIM, layers=block())
    module, scaled = config.build(), config.clone(logit_scale=0.5, logit_cap=0.7).build()
    params, tokens = jax.jit(module.init)(jax.random.key(0)), jnp.asarray([[1, 2, 3, 4]], jnp.int32)
    plain, _ = functional(module)(params, None, tokens)
    wanted = 0.7 * np.tanh(0.5 * np.asarray(plain) / 0.7)
    np.testing.assert_allclose(functional(scaled)(params, None, tokens)[0], wanted, rtol=1e-5, atol=1e-6)
    (loss, _), _ = functional(scaled.loss)(params, None, {"tokens": tokens, "targets": tokens}, train=True)
    log_z = np.log(np.exp(wanted).sum(-1))
    assert float(loss) == pytest.approx(
        (log_z - np.take_along_axis(wanted, np.asarray(tokens)[..., None], -1)[..., 0]).mean(), rel=1e-4
    )
