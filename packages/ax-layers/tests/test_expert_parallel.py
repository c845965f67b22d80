"""Experts and tokens split over devices in every way, against all experts applied to all tokens on one device."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import Buildable, partial_for
from ax_layers import (
    AllToAll,
    Capacity,
    ExpertChoiceRouter,
    GatedExperts,
    MoE,
    TopKRouter,
    functional,
    ragged_exchange,
)
from ax_layers.protocols import Axes, Dispatch, Router, Routing, RowsMatmul
from ax_layers.testing import check_sharded
from grid import Grid

BATCH, LENGTH, DIM, EXPERTS = 8, 4, 8, 8
WITH_EXPERTS = {
    "embed": ("fsdp",),
    "batch": ("fsdp", "expert"),
    "expert": ("expert",),
    "mlp": ("tensor",),
    "seq": ("sequence",),
}
"""Tokens are split over the devices that experts are split over, too."""
APART = {**WITH_EXPERTS, "batch": ("fsdp",)}
PARTLY = {**WITH_EXPERTS, "expert": ("tensor", "expert")}
GRIDS: dict[str, tuple[dict[str, int], Mapping[str, tuple[str, ...]]]] = {
    "experts over 8": ({"expert": 8}, WITH_EXPERTS),
    "over 4, weights over 2": ({"fsdp": 2, "expert": 4}, WITH_EXPERTS),
    "over 2, weights over 2, inner dims over 2": ({"fsdp": 2, "expert": 2, "tensor": 2}, WITH_EXPERTS),
    "over 4, where tokens aren't split, inner dims over 2": ({"expert": 4, "tensor": 2}, APART),
    "over 4, where half of the tokens are": ({"fsdp": 2, "tensor": 2, "expert": 2}, PARTLY),
    "over 2, sequences over 2, weights over 2": ({"sequence": 2, "fsdp": 2, "expert": 2}, WITH_EXPERTS),
    "over 4, where tokens aren't split, sequences over 2": ({"expert": 4, "sequence": 2}, APART),
}
DISPATCHES: dict[str, tuple[Buildable[Dispatch], Buildable[Router]]] = {
    "all to all": (AllToAll.Config(), TopKRouter.Config(top_k=2)),
    "all to all, assignments by expert": (AllToAll.Config(), ExpertChoiceRouter.Config(experts_per_token=1.5)),
    "capacity": (Capacity.Config(factor=1.0), TopKRouter.Config(top_k=2)),
}
CASES = [
    *[("all to all", grid) for grid in GRIDS],
    ("all to all, assignments by expert", "over 2, sequences over 2, weights over 2"),
    ("capacity", "over 2, weights over 2, inner dims over 2"),
    ("capacity", "over 4, where half of the tokens are"),
    ("capacity", "over 4, where tokens aren't split, sequences over 2"),
]


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize(("dispatch", "grid"), CASES)
def test_many_devices_give_what_one_gives(dispatch: str, grid: str) -> None:
    sharder = Grid(*GRIDS[grid])
    bring, router = DISPATCHES[dispatch]
    experts = GatedExperts.Config(hidden_dim=12, dispatch=bring)
    layer = MoE.Config(dim=DIM, num_experts=EXPERTS, router=router, experts=experts)
    check_sharded(layer, normal(BATCH, LENGTH, DIM), sharder=sharder, shardings=sharder.shardings)


X, UP, DOWN = normal(BATCH, LENGTH, DIM), normal(EXPERTS, DIM, 12, seed=1), normal(EXPERTS, 12, DIM, seed=5)
WEIGHTS = (UP / DIM**0.5, DOWN / 12**0.5)
AXES: list[Axes] = [("expert", None, "mlp"), ("expert", "mlp", None)]


def routing(pairs: np.ndarray) -> Routing:
    """Of numbers ``token · EXPERTS + expert`` for each sequence."""
    tokens, experts = np.divmod(pairs.astype(np.int32), EXPERTS)
    weights = np.random.default_rng(3).uniform(0.1, 1.0, pairs.shape)
    return Routing(jnp.asarray(tokens), jnp.asarray(experts), jnp.asarray(weights, jnp.float32))


def mixed() -> Routing:
    """Any experts, in any order: some have no token, and a token may have none or all."""
    rng = np.random.default_rng(2)
    return routing(np.stack([rng.permutation(LENGTH * EXPERTS)[: 2 * LENGTH] for _ in range(BATCH)]))


def all_to(expert: int) -> Routing:
    return routing(np.tile(np.arange(LENGTH) * EXPERTS + expert, (BATCH, 1)))


Weights = tuple[jax.Array, jax.Array]
Results = tuple[jax.Array, tuple[jax.Array, Weights, jax.Array]]


def expert(rows: jax.Array, weights: Any, matmul: RowsMatmul, /) -> jax.Array:
    up, down = weights
    return matmul(jnp.tanh(matmul(rows, up)), down)


def everywhere(x: jax.Array, weights: Weights, told: Routing) -> jax.Array:
    """Every expert applied to every token, and all but the assignments multiplied by zero."""
    shares = jnp.zeros((*x.shape[:2], EXPERTS)).at[jnp.arange(len(x))[:, None], told.tokens, told.experts]
    inner = jnp.tanh(jnp.einsum("btd,edf->btef", x, weights[0]))
    return jnp.einsum("btef,efd,bte->btd", inner, weights[1], shares.add(told.weights))


def with_gradients(call: Callable[[jax.Array, Weights, Routing], jax.Array], told: Routing) -> Results:
    """The output, and the gradients of tokens, weights of experts and of the routing's weights."""
    slopes = normal(BATCH, LENGTH, DIM, seed=4)

    def loss(x: jax.Array, weights: Weights, shares: jax.Array) -> tuple[jax.Array, jax.Array]:
        out = call(x, weights, told._replace(weights=shares))
        return (out * slopes).sum(), out

    (_, out), gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(X, WEIGHTS, told.weights)
    return out, gradients


def dispatched(config: Buildable[Dispatch], grid: str) -> Callable[[jax.Array, Weights, Routing], Any]:
    pure: Any = functional(config.build(), sharder=Grid(*GRIDS[grid]))
    return lambda x, weights, told: pure({}, None, x, told, weights, AXES, expert)[0]


def check_equal(got: object, wanted: object) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, wanted)


@pytest.mark.parametrize("told", [mixed(), all_to(0), all_to(7)], ids=["mixed", "all to the first", "all to the last"])
@pytest.mark.parametrize("grid", ["over 4, weights over 2", "over 4, where tokens aren't split, sequences over 2"])
def test_no_assignment_is_lost_however_uneven_the_load(grid: str, told: Routing) -> None:
    call = dispatched(AllToAll.Config(), grid)
    check_equal(with_gradients(lambda *given: call(*given)[0], told), with_gradients(everywhere, told))
    _, reached = jax.jit(call)(X, WEIGHTS, told)
    np.testing.assert_array_equal(reached, np.apply_along_axis(np.bincount, 1, told.tokens, minlength=LENGTH))


def test_beyond_the_room_the_smallest_weights_are_dropped_and_not_counted() -> None:
    told, room, num_devices = mixed(), 1.25, 4
    num_rows = math.ceil(room * told.tokens.shape[1] / num_devices)
    kept = np.zeros(told.tokens.shape, bool)
    for b in range(BATCH):  # each is on a device of its own
        shares = np.asarray(told.weights[b])
        for device in range(num_devices):
            ours = np.flatnonzero(np.asarray(told.experts[b]) // (EXPERTS // num_devices) == device)
            kept[b, sorted(ours, key=lambda i: -shares[i])[:num_rows]] = True
    assert 0 < kept.sum() < kept.size, "the case is there to be seen"
    served = told._replace(weights=told.weights * jnp.asarray(kept, jnp.float32))
    call = dispatched(AllToAll.Config(room=room), "over 4, weights over 2")
    got, wanted = with_gradients(lambda *given: call(*given)[0], told), with_gradients(everywhere, served)
    check_equal(got, (wanted[0], (*wanted[1][:2], np.asarray(wanted[1][2]) * kept)))
    assert int(jax.jit(call)(X, WEIGHTS, told)[1].sum()) == kept.sum()


def emulated_ragged_all_to_all(
    operand: jax.Array,
    output: jax.Array,
    input_offsets: jax.Array,
    send_sizes: jax.Array,
    output_offsets: jax.Array,
    recv_sizes: jax.Array,
    *,
    axis_name: tuple[str, ...],
) -> jax.Array:
    """What the documentation of ``jax.lax.ragged_all_to_all`` says, which CPUs can't do; NaN where its conditions don't hold."""
    every = [jax.lax.all_gather(a, axis_name) for a in (operand, input_offsets, send_sizes, output_offsets)]
    here, places = jax.lax.axis_index(axis_name), jnp.arange(len(output))
    for source, (rows, begins, sizes, targets) in enumerate(zip(*every, strict=True)):
        begin, size, target = begins[here], sizes[here], targets[here]
        legal = (size == recv_sizes[source]) & (target + size <= len(output)) & (begin + size <= len(rows))
        sent = jnp.where(legal, jnp.take(rows, places - target + begin, axis=0, mode="clip"), jnp.nan)
        output = jnp.where(((places >= target) & (places < target + size))[:, None], sent, output)
    return output


@pytest.mark.parametrize("room", [None, 1.25])
def test_only_rows_that_count_need_be_sent(monkeypatch: pytest.MonkeyPatch, room: float | None) -> None:
    told, grid = mixed(), "over 4, weights over 2"
    padded = dispatched(AllToAll.Config(room=room), grid)
    wanted = with_gradients(lambda *given: padded(*given)[0], told)
    monkeypatch.setattr(jax.lax, "ragged_all_to_all", emulated_ragged_all_to_all)
    ragged = dispatched(AllToAll.Config(room=room, exchange=partial_for(ragged_exchange)), grid)
    check_equal(with_gradients(lambda *given: ragged(*given)[0], told), wanted)


@pytest.mark.parametrize(
    ("dispatch", "sent"),
    [
        # Numbers of experts, then rows there and back, and their gradients: 8 devices, rows of one to one.
        (AllToAll.Config(), ["s32[1,32]", *["f32[1,32,8]"] * 4]),
        (AllToAll.Config(room=1.0), ["s32[1,8]", *["f32[1,8,8]"] * 4]),
        (Capacity.Config(factor=1.0), ["f32[1,1,8,8]"] * 4),
    ],
    ids=["worst case", "room", "capacity"],
)
def test_tokens_are_sent_and_not_gathered(dispatch: Buildable[Dispatch], sent: list[str]) -> None:
    length = 32
    x, told = jnp.ones((BATCH, length, DIM)), jnp.zeros((BATCH, 2 * length), jnp.int32)
    call = dispatched(dispatch, "experts over 8")
    grid = Grid(*GRIDS["experts over 8"])

    def loss(x: jax.Array, weights: Weights) -> jax.Array:
        x, tokens, experts = (grid.constrain(a, ("batch", *(None,) * (a.ndim - 1))) for a in (x, told, told))
        up, down = (grid.constrain(weight, axes) for weight, axes in zip(weights, AXES, strict=True))
        out = call(x, (up, down), Routing(tokens, experts, tokens.astype(jnp.float32)))[0]
        total: jax.Array = (grid.constrain(out, ("batch", None, None)) ** 2).sum()
        return total

    text = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(x, WEIGHTS).compile().as_text()
    assert text is not None
    assert not re.search(r" (all-gather|collective-permute)\(", text)
    found = re.findall(r" = \(?(\w+\[[\d,]*\]).* all-to-all\(", text)
    assert sorted(found) == sorted(sent)
