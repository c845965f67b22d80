"""The FLOPs that models tell of themselves are those that XLA counts in the program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from ax_config import override, partial_for, replace, role
from ax_layers import CausalLM, as_model, dot_product_attention
from ax_recipes import model

LENGTH = 4_096


def counted(config: CausalLM.Config, num_layers: int) -> float:
    """FLOPs of forward and backward for one token, by XLA's analysis of the whole program; it has no loop over layers."""
    config = override(config, [f"layers.num_layers={num_layers}", f"layers.unroll={num_layers}"])
    lm = as_model(config.build())
    params = jax.eval_shape(lm.init, jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((1, LENGTH), jnp.int32)

    def loss(params: object) -> jax.Array:
        batch = {"tokens": jnp.zeros(tokens.shape, tokens.dtype), "targets": jnp.zeros(tokens.shape, tokens.dtype)}
        value, _ = lm.loss(params, batch, key=jax.random.key(0), train=True)  # type: ignore[arg-type]  # shapes
        return value

    analysis = jax.jit(jax.value_and_grad(loss)).lower(params).cost_analysis()
    assert isinstance(analysis, dict)
    return float(analysis["flops"]) / LENGTH


def evenly_grouped_matmul(rows: jax.Array, weights: jax.Array, group_sizes: jax.Array, /) -> jax.Array:
    """As many FLOPs as a grouped matmul has, for groups of one size: XLA counts ``ragged_dot`` as if all did everything."""
    num_groups, dim, _ = weights.shape
    return jnp.einsum("gmd,gdf->gmf", rows.reshape(num_groups, -1, dim), weights).reshape(len(rows), -1)


@pytest.mark.parametrize(("name", "num_layers"), [("llama-2-7b", 32), ("llama-2-70b", 80), ("qwen3-30b-a3b", 48)])
def test_flops_agree_with_xla(name: str, num_layers: int) -> None:
    config = replace(model(name), role("attention_fn"), partial_for(dot_product_attention))  # XLA sees into this one
    if name == "qwen3-30b-a3b":
        config = replace(config, role("grouped_matmul"), partial_for(evenly_grouped_matmul))
    one, two = counted(config, 1), counted(config, 2)
    whole = one + (num_layers - 1) * (two - one)
    assert config.build().training_flops_per_token(LENGTH) == pytest.approx(whole, rel=0.02)
