"""Fused projections, types of sums and outputs, histograms and per-layer reports, and the call of a pipeline's stage."""

from __future__ import annotations

from typing import cast

import ax_config
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import REQUIRED
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    FusedQKV,
    GatedFeedForward,
    Linear,
    Module,
    Repeat,
    as_model,
    functional,
    scoped,
)
from ax_layers.protocols import ArrayTree

DIM = 8


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def test_fused_projections_give_what_three_give() -> None:
    separate = Attention.Config(dim=DIM, num_heads=8, num_kv_heads=4, head_dim=4).build()
    fused = Attention.Config(dim=DIM, num_heads=8, num_kv_heads=4, head_dim=4, qkv=FusedQKV.Config()).build()
    params = jax.jit(separate.init)(jax.random.key(0))
    query, key, value = (np.asarray(cast("ArrayTree", params[n])["weight"]) for n in ("query", "key", "value"))
    grouped = query.reshape(DIM, 4, 2, 4)
    weight = np.concatenate([grouped, key[:, :, None], value[:, :, None]], axis=2)
    x = normal(2, 5, DIM)
    got, _ = functional(fused)(
        {"qkv": {"projection": {"weight": jnp.asarray(weight)}}, "output": params["output"]}, None, x
    )
    wanted, _ = functional(separate)(params, None, x)
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert fused.training_flops_per_token(5) == separate.training_flops_per_token(5)
    assert "query" not in fused.children


def linear(*, accumulation: str | None = None, output: str | None = None) -> Linear:
    return Linear.Config(
        in_dim=512,
        out_dim=8,
        in_axes=("embed",),
        out_axes=(None,),
        compute_dtype="bfloat16",
        accumulation_dtype=accumulation,
        output_dtype=output,
    ).build()


def test_types_of_sums_and_outputs() -> None:
    x = normal(4, 512)
    errors = {}
    for accumulation in (None, "float32"):
        module = linear(accumulation=accumulation, output="float32")
        params = jax.jit(module.init)(jax.random.key(0))
        weight = np.asarray(params["weight"]).astype(jnp.bfloat16).astype(np.float64)
        exact = np.asarray(x.astype(jnp.bfloat16)).astype(np.float64) @ weight
        y, _ = functional(module)(params, None, x)
        assert y.dtype == jnp.float32
        errors[accumulation] = np.abs(np.asarray(y) - exact).max()
    assert errors["float32"] < 1e-5 < errors[None], "a sum in bfloat16 is rounded to eight bits"
    plain = linear()
    assert functional(plain)(jax.jit(plain.init)(jax.random.key(0)), None, x)[0].dtype == jnp.bfloat16
    with pytest.raises(ValueError, match="no type for parameters or computation"):
        linear(output="int8")


class Watched(Module):
    """A feed-forward that only reports."""

    class Config(ax_config.Config["Watched"]):
        dim: int = REQUIRED

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()

    @scoped
    def __call__(self, x: jax.Array, /) -> jax.Array:
        self.histogram("spread", x, low=-1.0, high=1.0, num_bins=4)
        self.summarise("size", jnp.abs(x).mean())
        return x


def test_histograms_and_layers_are_reported() -> None:
    values = jnp.asarray([[-5.0, -0.9, -0.1, 0.1], [0.2, 0.6, 0.7, 9.0]], jnp.float32)
    _, collected = functional(Watched.Config().build(dim=4))({}, None, values)
    assert [float(collected.summaries[f"spread[{i}]"].mean) for i in range(4)] == [0.25, 0.125, 0.25, 0.375]

    block = Block.Config(attention=Attention.Config(num_heads=2, head_dim=4), ffn=Watched.Config())
    module = CausalLM.Config(dim=DIM, layers=Repeat.Config(num_layers=3, layer=block)).build(vocab_size=11)
    params = jax.jit(module.init)(jax.random.key(0))
    tokens = jnp.zeros((2, 4), jnp.int32)
    batch = {"tokens": tokens, "targets": tokens}
    (_, mean), (_, each) = (
        as_model(module, per_layer=per_layer).loss(params, batch, key=jax.random.key(1), train=True)
        for per_layer in (False, True)
    )
    layers = [f"layers/ffn/size.{i}" for i in range(3)]
    assert set(layers) <= set(each) - set(mean)
    np.testing.assert_allclose(np.mean([each[name][0] for name in layers]), mean["layers/ffn/size"][0], rtol=1e-6)
    shares = [float(mean[f"layers/ffn/spread[{i}]"][0]) for i in range(4)]
    np.testing.assert_allclose(sum(shares), 1.0, rtol=1e-6)


def test_a_stage_of_a_pipeline_is_a_call_of_its_layers() -> None:
    block = Block.Config(
        attention=Attention.Config(num_heads=2, head_dim=4), ffn=GatedFeedForward.Config(hidden_dim=16)
    )
    whole = Repeat.Config(num_layers=4, layer=block).build(dim=DIM)
    stage = Repeat.Config(num_layers=2, layer=block).build(dim=DIM)
    params = jax.jit(whole.init)(jax.random.key(0))
    x = normal(2, 5, DIM)
    wanted, _ = functional(whole)(params, None, x)
    # Two stages at work at once, as a pipeline runs them: a stage's layers are its slice of the stacked parameters.
    by_stage = jax.tree.map(lambda p: p.reshape(2, 2, *p.shape[1:]), params)
    both = jax.jit(jax.vmap(functional(stage), in_axes=(0, None, 0)))
    after_first, _ = both(by_stage, None, jnp.stack([x, jnp.zeros_like(x)]))
    after_second, _ = both(by_stage, None, jnp.stack([jnp.zeros_like(x), after_first[0]]))
    np.testing.assert_allclose(after_second[1], wanted, atol=1e-5)
