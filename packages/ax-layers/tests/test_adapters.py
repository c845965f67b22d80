"""Adapters and weights in few bits: closed forms, what is learnt, and a plain model's parameters taken over."""

from __future__ import annotations

from typing import cast

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import NoMatchError, overriding, partial_for, role
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    DelayedRange,
    GatedFeedForward,
    Int8Linear,
    Linear,
    LoRA,
    ParamSpec,
    QuantisedLinear,
    Repeat,
    adopted,
    as_model,
    channel_range,
    functional,
    initializers,
    int8_base,
    lora,
    quantised,
    tensor_range,
)
from ax_layers.protocols import ArrayTree
from ax_layers.testing import check_layer, check_sharded
from grid import Grid

TO_HEADS = {"in_dim": 6, "out_dim": (2, 4), "in_axes": ("embed",), "out_axes": ("heads", None)}
FROM_HEADS = {"in_dim": (2, 4), "out_dim": 6, "in_axes": ("heads", None), "out_axes": ("embed",)}


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def model() -> CausalLM.Config:
    block = Block.Config(
        attention=Attention.Config(num_heads=2, head_dim=4), ffn=GatedFeedForward.Config(hidden_dim=12)
    )
    return CausalLM.Config(vocab_size=11, dim=8, layers=Repeat.Config(num_layers=2, layer=block))


def paths(tree: object) -> dict[str, object]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def adapter(**more: object) -> LoRA.Config:
    up = Linear.Config(initializer=partial_for(initializers.normal, std=0.5))
    return LoRA.Config(base=Linear.Config(use_bias=True), rank=3, alpha=6.0, up=up, **more)  # type: ignore[arg-type]


def test_lora() -> None:
    for interface, x in ((TO_HEADS, normal(2, 3, 6)), (FROM_HEADS, normal(2, 3, 2, 4))):
        config = adapter(**interface)
        check_layer(config, x)
        module = config.build()
        params = jax.jit(module.init)(jax.random.key(0))
        base, down, up = (cast("ArrayTree", params[name]) for name in ("base", "down", "up"))
        got, _ = functional(module)(params, None, x)
        plain, _ = functional(Linear.Config(use_bias=True, **interface).build())(base, None, x)  # type: ignore[arg-type]
        wide, tall = np.asarray(down["weight"]).reshape(-1, 3), np.asarray(up["weight"]).reshape(3, -1)
        added = 2.0 * (np.asarray(x).reshape(6, -1) @ wide @ tall).reshape(got.shape)
        np.testing.assert_allclose(got, plain + added, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="rank of at least 1, got 0"):
        LoRA.Config(base=Linear.Config(), rank=0, alpha=1.0, **TO_HEADS).build()  # type: ignore[arg-type]


def test_a_model_with_adapters_starts_as_it_was_and_learns_only_them() -> None:
    config, four = model(), ("query", "key", "value", "output")
    for name in four:
        config = lora(config, rank=2, alpha=4.0, targets=role(name))
    plain, adapted = model().build(), config.build()
    trained, fresh = (jax.jit(m.init)(jax.random.key(seed)) for seed, m in enumerate((plain, adapted)))
    params = adopted(trained, fresh=fresh, specs=adapted.specs())
    tokens = jnp.asarray([[1, 2, 3, 4]], jnp.int32)
    wanted, _ = functional(plain)(trained, None, tokens)
    got, _ = functional(adapted)(params, None, tokens)
    np.testing.assert_array_equal(got, wanted)

    specs = {name: cast("ParamSpec", spec) for name, spec in paths(as_model(adapted).specs()).items()}
    learnt = {name for name, spec in specs.items() if spec.trainable}
    assert learnt == {f"layers/attention/{name}/{part}/weight" for name in four for part in ("down", "up")}
    assert all(cast("ParamSpec", spec).trainable for spec in paths(as_model(plain).specs()).values())
    assert specs["layers/attention/query/down/weight"].axes == ("layers", "embed", None)

    with pytest.raises(NoMatchError):
        lora(model(), rank=2, alpha=4.0, targets="**.nowhere")


def test_int8_linear_is_the_linear_rounded() -> None:
    for interface, x in ((TO_HEADS, normal(2, 3, 6)), (FROM_HEADS, normal(2, 3, 2, 4))):
        config = Int8Linear.Config(use_bias=True, **interface)  # type: ignore[arg-type]
        check_layer(config, x)
        wide, narrow = Linear.Config(use_bias=True, **interface).build(), config.build()  # type: ignore[arg-type]
        first, rounded = (jax.jit(m.init)(jax.random.key(3)) for m in (wide, narrow))
        weight, summed = np.asarray(first["weight"]), tuple(range(x.ndim - 2))
        scale = np.abs(weight).max(axis=summed) / 127
        np.testing.assert_allclose(rounded["scale"], scale, rtol=1e-6)
        assert np.abs(np.asarray(rounded["weight"], np.float32) * scale - weight).max() <= 0.51 * scale.max()
        bias = normal(*cast("jax.Array", first["bias"]).shape)
        wanted, _ = functional(wide)({**first, "bias": bias}, None, x)
        got, _ = functional(narrow)({**rounded, "bias": bias}, None, x)
        np.testing.assert_allclose(got, wanted, atol=0.05)
        assert not any(cast("ParamSpec", spec).trainable for spec in narrow.specs().values())
        assert narrow.training_flops_per_token(1) == 4 * 6 * 8


def test_adapters_on_an_int8_base_take_over_a_plain_model() -> None:
    plain, small = model().build(), lora(int8_base(model()), rank=2, alpha=4.0, targets=Int8Linear).build()
    trained, fresh = (jax.jit(m.init)(jax.random.key(seed)) for seed, m in enumerate((plain, small)))
    params = adopted(trained, fresh=fresh, specs=small.specs())
    shapes = {name: (leaf.shape, leaf.dtype) for name, leaf in cast("dict[str, jax.Array]", paths(params)).items()}
    specs = {name: (s.shape, s.dtype) for name, s in cast("dict[str, ParamSpec]", paths(small.specs())).items()}
    assert shapes == specs
    tokens = jnp.asarray([[1, 2, 3, 4]], jnp.int32)
    wanted, _ = functional(plain)(trained, None, tokens)
    got, _ = functional(small)(params, None, tokens)
    np.testing.assert_allclose(got, wanted, atol=0.03 * float(jnp.abs(wanted).max()))
    with pytest.raises(ValueError, match="no place for 'stranger'"):
        adopted({**trained, "stranger": tokens}, fresh=fresh, specs=small.specs())


# Products in eight bits.


def eight_bits(**more: object) -> QuantisedLinear.Config:
    return QuantisedLinear.Config(**{**FROM_HEADS, **more})  # type: ignore[arg-type]


def grid(x: np.ndarray, largest: np.ndarray, dtype: str) -> np.ndarray:
    """The nearest numbers that the type has, by ml_dtypes and numpy."""
    most = {"int8": 127.0, "float8_e4m3fn": 448.0, "float8_e5m2": 57_344.0}[dtype]
    scale = largest / most
    cut = np.clip(x / scale, -most, most)
    return (np.round(cut) if dtype == "int8" else cut.astype(jnp.dtype(dtype)).astype(np.float32)) * scale


@pytest.mark.parametrize(
    ("dtype", "gradient_dtype"),
    [("int8", None), ("int8", "int8"), ("float8_e4m3fn", None), ("float8_e4m3fn", "float8_e5m2")],
)
@pytest.mark.parametrize("whole", [False, True], ids=["channels", "tensor"])
def test_product_and_straight_through_gradients(dtype: str, gradient_dtype: str | None, whole: bool) -> None:
    largest = partial_for(tensor_range if whole else channel_range)
    config = eight_bits(dtype=dtype, gradient_dtype=gradient_dtype, input_range=largest, weight_range=largest)
    module = config.build()
    x, weight, cotangent = normal(2, 5, 2, 4), normal(2, 4, 6, seed=1), normal(2, 5, 6, seed=2)

    def call(x: jax.Array, weight: jax.Array) -> jax.Array:
        return functional(module)({"weight": weight}, None, x)[0]

    out, back = jax.jit(lambda x, w: (call(x, w), jax.vjp(call, x, w)[1](cotangent)))(x, weight)

    x_MI, weight_IO, cotangent_MO = (
        np.asarray(a).reshape(s) for a, s in ((x, (10, 8)), (weight, (8, 6)), (cotangent, (10, 6)))
    )
    axes = (None, None) if whole else (1, 0)
    x_top, weight_top = (np.abs(a).max(axis=axis, keepdims=True) for a, axis in ((x_MI, axes[0]), (weight_IO, axes[1])))
    x_near, weight_near = grid(x_MI, x_top, dtype), grid(weight_IO, weight_top, dtype)
    np.testing.assert_allclose(out.reshape(10, 6), x_near @ weight_near, rtol=1e-4, atol=1e-4)

    def near(gradient: np.ndarray) -> np.ndarray:
        if gradient_dtype is None:
            return gradient
        return grid(gradient, np.abs(gradient).max(axis=1, keepdims=True), gradient_dtype)

    most = {"int8": 127.0, "float8_e4m3fn": 448.0}[dtype]
    to_x = near(cotangent_MO * weight_top / most) @ (weight_near / weight_top * most).T
    to_weight = (near((cotangent_MO * x_top / most).T) @ (x_near / x_top * most)).T
    np.testing.assert_allclose(back[0].reshape(10, 8), to_x, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(back[1].reshape(8, 6), to_weight, rtol=1e-4, atol=1e-4)


def test_delayed_range_remembers_and_cuts() -> None:
    module = eight_bits(input_range=DelayedRange.Config(history_length=2), use_bias=True).build()
    params = jax.jit(module.init)(jax.random.key(0))
    assert cast("ParamSpec", paths(module.specs())["input_range/history"]).trainable is False
    call = jax.jit(functional(module))
    history = []
    for size in (3.0, 1.0, 2.0):
        out, collected = call(params, None, jnp.full((1, 2, 4), size, jnp.float32))
        history.append(collected.updates["input_range/history"].tolist())
        params = {**params, "input_range": {"history": collected.updates["input_range/history"]}}
    assert history == [[0.0, 3.0], [3.0, 1.0], [1.0, 2.0]]
    wanted, _ = call(params, None, jnp.full((1, 2, 4), 2.0, jnp.float32))
    got, _ = call(params, None, jnp.full((1, 2, 4), 50.0, jnp.float32))
    np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg="what exceeds the range is cut to it")
    np.testing.assert_allclose(out, wanted, rtol=2e-2)


def test_a_quantised_model_has_the_parameters_of_the_plain_one() -> None:
    ranges = {"input_range": DelayedRange.Config(), "weight_range": partial_for(tensor_range)}
    new = QuantisedLinear.Config(dtype="float8_e4m3fn", gradient_dtype="float8_e5m2", **ranges)  # type: ignore[arg-type]
    before = overriding("**.up.use_bias=True")(model())
    config = quantised(before, new)
    plain, module = before.build(), config.build()
    trained, fresh = (jax.jit(m.init)(jax.random.key(0)) for m in (plain, module))
    assert paths(plain.specs()).items() <= paths(module.specs()).items()
    params = adopted(trained, fresh=fresh, specs=module.specs())
    tokens = jnp.asarray([[1, 2, 3, 4]], jnp.int32)
    batch = {"tokens": tokens, "targets": tokens}
    (loss, (_, updates)), grads = jax.jit(
        jax.value_and_grad(
            lambda p: as_model(module).loss_and_updates(p, batch, key=jax.random.key(0), train=True), has_aux=True
        )
    )(params)
    wanted, _ = as_model(plain).loss(trained, batch, key=jax.random.key(0), train=True)
    np.testing.assert_allclose(loss, wanted, rtol=2e-2)
    assert updates["layers/ffn/up/input_range/history"].shape == (2, 16)
    assert all(np.isfinite(np.asarray(g)).all() for g in jax.tree.leaves(grads))
    with pytest.raises(NoMatchError):
        quantised(ax_config.replace(model(), Linear, Int8Linear.Config()), new)


def test_on_eight_devices_as_on_one() -> None:
    grid = Grid()
    rounded = eight_bits(gradient_dtype="int8", input_range=DelayedRange.Config())
    for layer in (adapter(**FROM_HEADS), rounded):
        check_sharded(layer, normal(2, 3, 2, 4), sharder=grid, shardings=grid.shardings)


def test_types_that_nothing_multiplies() -> None:
    with pytest.raises(ValueError, match="'int4' is no type to multiply in; it is one of int8"):
        eight_bits(dtype="int4").build()
    with pytest.raises(ValueError, match="no products of int8 gradients with float8_e4m3fn"):
        eight_bits(dtype="float8_e4m3fn", gradient_dtype="int8").build()


def test_nothing_but_zeros() -> None:
    module = eight_bits().build()
    params = jax.jit(module.init)(jax.random.key(0))
    assert not np.asarray(functional(module)(params, None, jnp.zeros((1, 2, 4), jnp.float32))[0]).any()
