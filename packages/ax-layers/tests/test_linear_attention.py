"""State-space and linear-attention layers: in chunks as row by row, in pieces as at once, segments apart."""

from __future__ import annotations

import functools
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import Buildable, partial_for
from ax_layers import (
    Attention,
    Block,
    CausalConv,
    Gated,
    GatedDelta,
    GatedFeedForward,
    GatedRMSNorm,
    Linear,
    Mamba2,
    Module,
    Remat,
    Repeat,
    Residual,
    delta_rule,
    functional,
    initializers,
    ssd,
)
from ax_layers.protocols import ArrayTree, SequenceLayer
from ax_layers.testing import check_delta_rule_fn, check_extend, check_layer, check_sharded, check_state_space_fn
from grid import Grid

DIM = 8


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize(("length", "chunk_size"), [(11, 4), (8, 4), (5, 64), (7, 1), (1, 4)])
def test_in_chunks_as_row_by_row(length: int, chunk_size: int) -> None:
    check_state_space_fn(functools.partial(ssd, chunk_size=chunk_size), length=length)
    check_delta_rule_fn(functools.partial(delta_rule, chunk_size=chunk_size), length=length)


@pytest.mark.parametrize("wrong", ["state", "segments", "type", "decay"])
def test_the_kit_notices(wrong: str) -> None:
    def fn(
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        log_decay: jax.Array,
        /,
        *,
        state: jax.Array | None = None,
        segments: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        kept, apart = None if wrong == "state" else state, None if wrong == "segments" else segments
        decay = 0.99 * log_decay if wrong == "decay" else log_decay
        out, after = ssd(query, key, value, decay, state=kept, segments=apart)
        return out.astype(jnp.float32) if wrong == "type" else out, after

    with pytest.raises(
        AssertionError, match="bfloat16: the output" if wrong == "type" else "a state, segments: output"
    ):
        check_state_space_fn(fn, gradients=False)


def test_decays_that_leave_nothing_are_no_trouble() -> None:
    query, value, beta = normal(2, 9, 2, 3), normal(2, 9, 4, 5, seed=2), jax.nn.sigmoid(normal(2, 9, 4, seed=3))
    key = normal(2, 9, 2, 3, seed=1)
    decay = jnp.full((2, 9, 4), -1e4, jnp.float32)

    def outputs(decay: jax.Array) -> tuple[jax.Array, jax.Array]:
        with_beta, _ = delta_rule(query, key, value, decay, beta, chunk_size=4)
        return with_beta, ssd(query, key, value, decay, chunk_size=4)[0]

    got, back = jax.vjp(outputs, decay)
    score = jnp.repeat(query * key, 2, axis=2).sum(-1)[..., None]
    np.testing.assert_allclose(got[0], score * beta[..., None] * value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1], score * value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(back(got)[0], 0.0, atol=1e-4)


# The layers.


def mamba2() -> Mamba2.Config:
    return Mamba2.Config(
        num_heads=4, head_dim=4, state_dim=3, num_groups=2, state_space_fn=partial_for(ssd, chunk_size=3)
    )


def gated_delta() -> GatedDelta.Config:
    return GatedDelta.Config(
        num_key_heads=2, key_dim=4, num_value_heads=4, value_dim=3, delta_rule_fn=partial_for(delta_rule, chunk_size=3)
    )


LAYERS: dict[str, Buildable[Module]] = {
    "mamba-2": mamba2().clone(dim=DIM, norm=GatedRMSNorm.Config(num_groups=2)),
    "gated delta": gated_delta().clone(dim=DIM),
    "block": Block.Config(dim=DIM, attention=gated_delta(), ffn=GatedFeedForward.Config(hidden_dim=12)),
    "repeat of remat": Repeat.Config(
        dim=DIM, num_layers=2, layer=Remat.Config(layer=Residual.Config(layer=mamba2()), save=("value",))
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    check_layer(LAYERS[name], normal(2, 5, DIM))


@pytest.mark.parametrize("name", ["mamba-2", "block"])
def test_on_eight_devices_as_on_one(name: str) -> None:
    grid = Grid()
    check_sharded(LAYERS[name], normal(2, 5, DIM), sharder=grid, shardings=grid.shardings)


@pytest.mark.parametrize("name", LAYERS)
def test_piece_by_piece_equals_at_once(name: str) -> None:
    module = LAYERS[name].build()
    check_extend(cast("SequenceLayer", module), jax.jit(module.init)(jax.random.key(0)), normal(3, 8, DIM))


@pytest.mark.parametrize("name", LAYERS)
def test_segments_know_nothing_of_each_other(name: str) -> None:
    module = LAYERS[name].build()
    params, x = jax.jit(module.init)(jax.random.key(0)), normal(1, 9, DIM)
    call = jax.jit(functional(cast("SequenceLayer", module)))
    packed, _ = call(params, None, x, segments=jnp.asarray([[1, 1, 1, 1, 2, 2, 3, 3, 3]], jnp.int32))
    for start, end in ((0, 4), (4, 6), (6, 9)):
        alone, _ = call(params, None, x[:, start:end])
        np.testing.assert_allclose(packed[:, start:end], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["mamba-2", "gated delta"])
def test_padding_may_stand_anywhere(name: str) -> None:
    module = cast("SequenceLayer", LAYERS[name].build())
    params, x = jax.jit(cast("Module", module).init)(jax.random.key(0)), normal(1, 7, DIM)
    extend, call = jax.jit(functional(module.extend)), jax.jit(functional(module))
    cache: ArrayTree = module.init_cache(batch_size=1, max_length=5)
    positions = [-1, 0, 1, -1, 2, -1, 3]
    (out, cache), _ = extend(params, None, x, cache, positions=jnp.asarray([positions], jnp.int32))
    rows = [i for i, at in enumerate(positions) if at >= 0]
    alone, _ = call(params, None, x[:, rows])
    np.testing.assert_allclose(out[:, np.asarray(rows)], alone, rtol=1e-5, atol=1e-5)
    (after, _), _ = extend(params, None, x[:, :1], cache, positions=jnp.asarray([[4]], jnp.int32))
    longer, _ = call(params, None, jnp.concatenate([x[:, np.asarray(rows)], x[:, :1]], axis=1))
    np.testing.assert_allclose(after[:, 0], longer[:, -1], rtol=1e-5, atol=1e-5)


def test_causal_conv_is_numpys() -> None:
    module = CausalConv.Config(dim=(2, 3), axes=("heads", None), width=3).build()
    x, weight, bias = normal(2, 6, 2, 3), normal(3, 2, 3, seed=1), normal(2, 3, seed=2)
    out, _ = functional(module)({"weight": weight, "bias": bias}, None, x)
    for b, n, h in np.ndindex(2, 2, 3):
        wanted = np.convolve(np.asarray(x)[b, :, n, h], np.asarray(weight)[::-1, n, h])[:6] + np.asarray(bias)[n, h]
        np.testing.assert_allclose(out[b, :, n, h], wanted, rtol=1e-5, atol=1e-5)
    assert module.training_flops_per_token(100) == 6 * 3 * 2 * 3
    with pytest.raises(ValueError, match="width of at least 1, got 0"):
        CausalConv.Config(dim=2, axes=(None,), width=0).build()


def test_gated_norm_closed_form() -> None:
    x, gate, scale = (np.asarray(normal(2, 4, 3, seed=seed)) for seed in range(3))
    opening = gate / (1 + np.exp(-gate))
    for gate_first in (True, False):
        config = GatedRMSNorm.Config(dim=(4, 3), axes=("heads", None), num_groups=2, gate_first=gate_first, eps=1e-2)
        out, _ = functional(config.build())({"scale": jnp.asarray(scale[0])}, None, jnp.asarray(x), jnp.asarray(gate))
        groups = ((x * opening) if gate_first else x).reshape(2, 2, 6)
        wanted = (groups / np.sqrt((groups**2).mean(-1, keepdims=True) + 1e-2)).reshape(2, 4, 3) * scale[0]
        np.testing.assert_allclose(out, wanted if gate_first else wanted * opening, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"divides the first of the dims \(4, 3\), got 3"):
        GatedRMSNorm.Config(dim=(4, 3), axes=("heads", None), num_groups=3).build()


def test_steps_are_cut() -> None:
    x, free = normal(2, 5, DIM), mamba2().clone(dim=DIM)
    params = jax.jit(free.build().init)(jax.random.key(0))
    long = params | {"step_bias": jnp.full((4,), 9.0, jnp.float32)}
    bias = float(jnp.log(jnp.expm1(0.05)))
    fixed = params | {
        "step_bias": jnp.full((4,), bias, jnp.float32),
        "step": {"weight": jnp.zeros((DIM, 4), jnp.float32)},
    }
    got, _ = functional(free.clone(max_step=0.05).build())(long, None, x)
    wanted, _ = functional(free.build())(fixed, None, x)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    short = params | {"step_bias": jnp.full((4,), -9.0, jnp.float32)}
    got, _ = functional(free.clone(min_step=0.05).build())(short, None, x)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_attention_with_a_gate() -> None:
    plain = Attention.Config(dim=DIM, num_heads=2, head_dim=4)
    gated, x = plain.clone(gate=Linear.Config()), normal(2, 5, DIM)
    check_layer(gated, x)
    params = jax.jit(gated.build().init)(jax.random.key(0))
    params = params | {"output": {"weight": jnp.eye(8, dtype=jnp.float32).reshape(2, 4, 8)}}
    opening = jax.nn.sigmoid(x @ params["gate"]["weight"].reshape(DIM, 8))
    open_, _ = functional(plain.build())({k: v for k, v in params.items() if k != "gate"}, None, x)
    got, _ = functional(gated.build())(params, None, x)
    np.testing.assert_allclose(got, open_ * opening, rtol=1e-5, atol=1e-6)
    check_extend(gated.build(), params, normal(3, 6, DIM))


def test_gated_layer() -> None:
    config, x = Gated.Config(dim=DIM, layer=GatedFeedForward.Config(hidden_dim=12)), normal(2, 3, DIM)
    check_layer(config, x)
    params = jax.jit(config.build().init)(jax.random.key(0))
    whole, _ = functional(GatedFeedForward.Config(dim=DIM, hidden_dim=12).build())(params["layer"], None, x)
    got, _ = functional(config.build())(params, None, x)
    np.testing.assert_allclose(got, whole * jax.nn.sigmoid(x @ params["gate"]["weight"]), rtol=1e-5, atol=1e-6)


def test_first_decays_and_steps() -> None:
    key = jax.random.key(0)
    decay = np.exp(initializers.log_uniform(key, (1000,), "float32", fan_in=1, low=1.0, high=16.0))
    assert 1 <= decay.min() < 1.5
    assert 15.5 < decay.max() < 16.01
    assert decay.mean() == pytest.approx(8.5, rel=0.05)
    drawn = initializers.inverse_softplus_of_log_uniform(key, (1000,), "float32", fan_in=1, low=1e-3, high=0.1)
    step = np.log(np.asarray(jax.nn.softplus(drawn)))
    assert np.log(1e-3) - 1e-3 <= step.min()
    assert step.max() <= np.log(0.1) + 1e-3
    assert step.mean() == pytest.approx(np.log(1e-2), rel=0.02)


def test_flops_are_those_of_the_recurrence() -> None:
    per_weight = 6 * DIM * (2 * 2 * 3 + 2 * 4 * 4 + 4) + 6 * 4 * 4 * DIM
    convolutions = 6 * 4 * (2 * 2 * 3 + 4 * 4)
    assert LAYERS["mamba-2"].build().training_flops_per_token(7) == per_weight + convolutions + 12 * 4 * 3 * 4
    per_weight = 6 * DIM * (2 * 2 * 4 + 2 * 4 * 3 + 2 * 4) + 6 * 4 * 3 * DIM
    convolutions = 6 * 4 * (2 * 2 * 4 + 4 * 3)
    assert LAYERS["gated delta"].build().training_flops_per_token(7) == per_weight + convolutions + 18 * 4 * 4 * 3


def test_heads_share_what_divides_them() -> None:
    with pytest.raises(ValueError, match="num_heads is a multiple of num_groups, got 4 and 3"):
        mamba2().clone(dim=DIM, num_groups=3).build()
    with pytest.raises(ValueError, match="num_value_heads is a multiple of num_key_heads, got 4 and 3"):
        gated_delta().clone(dim=DIM, num_key_heads=3).build()
