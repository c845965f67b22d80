"""Experts' weights that are kept in parts: gathered where they are used, and their gradients summed in parts."""

from __future__ import annotations

import re
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import pytest
from ax_config import Buildable
from ax_layers import AllToAll, Dropless, GatedExperts, MoE, TopKRouter, functional
from ax_layers.protocols import ArrayTree, Dispatch
from ax_layers.testing import check_sharded
from grid import Grid

HYBRID: tuple[Mapping[str, int], Mapping[str, tuple[str, ...]]] = (
    {"data": 2, "fsdp": 4},
    {"batch": ("data", "fsdp"), "embed": ("fsdp",)},
)
"""The batch over all devices, weights over four: two copies of them."""


def moe(dispatch: Buildable[Dispatch]) -> MoE:
    config = MoE.Config(
        num_experts=4,
        router=TopKRouter.Config(top_k=2),
        experts=GatedExperts.Config(hidden_dim=16, dispatch=dispatch),
    )
    built = config.build(dim=8)
    assert isinstance(built, MoE)
    return built


@pytest.mark.parametrize("dispatch", [Dropless.Config(), AllToAll.Config()], ids=["dropless", "all to all"])
def test_no_gradient_of_whole_weights_is_summed_over_all_devices(dispatch: Buildable[Dispatch]) -> None:
    module = moe(dispatch)
    call = functional(module, sharder=Grid(*HYBRID))

    def loss(params: ArrayTree, x: jax.Array) -> jax.Array:
        return jnp.square(call(params, None, x)[0]).sum()

    params = jax.eval_shape(lambda: module.init(jax.random.key(0)))
    text = jax.jit(jax.grad(loss)).lower(params, jax.ShapeDtypeStruct((8, 4, 8), jnp.float32)).as_text()
    whole, part = {"4x8x16", "4x16x8"}, {"4x2x16", "4x16x2"}

    def results(op: str) -> list[str]:
        return re.findall(rf'"stablehlo\.{op}"(?:.|\n)*?-> tensor<([\dx]+)xf32>', text)

    gathers, scatters, sums = results("all_gather"), results("reduce_scatter"), results("all_reduce")
    assert sum(shape in whole for shape in gathers) == 3
    assert sum(shape in part for shape in scatters) == 3
    assert sum(shape in part for shape in sums) == 3, "over the two copies"
    assert not whole & {*sums, *scatters}


def test_on_many_devices_as_on_one() -> None:
    grid = Grid(*HYBRID)
    x = jax.random.normal(jax.random.key(0), (8, 4, 8))
    check_sharded(moe(Dropless.Config()), x, sharder=grid, shardings=grid.shardings)
