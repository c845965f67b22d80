"""The mixture of experts, against loops over tokens and experts in numpy and the papers' formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import Buildable, partial_for, replace, role
from ax_layers import (
    AllToAll,
    Attention,
    BalancingBias,
    Block,
    Capacity,
    CausalLM,
    Collected,
    Dropless,
    ExpertChoiceRouter,
    GatedExperts,
    GatedFeedForward,
    MoE,
    NoisyGating,
    Remat,
    Repeat,
    TopKRouter,
    as_model,
    best_scores_of_best_groups,
    functional,
    grouped_matmul,
    load_balance_loss,
    router_z_loss,
)
from ax_layers.protocols import ArrayTree, Dispatch, Router, RouterLoss
from ax_layers.testing import check_extend, check_grouped_matmul, check_layer, check_sharded
from grid import Grid

BATCH, LENGTH, DIM, EXPERTS = 4, 6, 8, 8
LOSSES: dict[str, Buildable[RouterLoss]] = {
    "load_balance": partial_for(load_balance_loss, weight=0.1),
    "z": partial_for(router_z_loss, weight=0.01),
}
GROUPED = partial_for(best_scores_of_best_groups, num_groups=4, num_kept_groups=2)
SIGMOID = TopKRouter.Config(
    top_k=3, score=partial_for(jax.nn.sigmoid), scale=2.5, select=GROUPED, bias=BalancingBias.Config(rate=0.1)
)


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


X = normal(BATCH, LENGTH, DIM)


def moe(router: Buildable[Router], dispatch: Buildable[Dispatch] | None = None, *, shared: bool = False) -> MoE.Config:
    experts = GatedExperts.Config(hidden_dim=12, dispatch=Dropless.Config() if dispatch is None else dispatch)
    return MoE.Config(
        dim=DIM,
        num_experts=EXPERTS,
        router=router,
        experts=experts,
        shared=GatedFeedForward.Config(hidden_dim=4) if shared else None,
    )


LAYERS = {
    "dropless": moe(TopKRouter.Config(top_k=2, losses=LOSSES)),
    "capacity": moe(TopKRouter.Config(top_k=2, losses=LOSSES), Capacity.Config(factor=1.0)),
    "all to all": moe(TopKRouter.Config(top_k=2, losses=LOSSES), AllToAll.Config()),
    "noisy": moe(TopKRouter.Config(top_k=2, noise=NoisyGating.Config()), shared=True),
    "sigmoid, groups, bias": moe(SIGMOID, shared=True),
    "expert choice": moe(ExpertChoiceRouter.Config(experts_per_token=2.0, losses=LOSSES)),
}


def run(
    config: MoE.Config, x: jax.Array = X, *, seed: int = 0, spread: float = 1.0
) -> tuple[np.ndarray, Collected, Mapping[str, Any]]:
    """The output, what was collected, and the parameters, whose router prefers some experts by ``spread``."""
    module = config.build()
    params = cast("dict[str, Any]", jax.jit(module.init)(jax.random.key(seed)))
    params["router"]["weight"] = params["router"]["weight"] * spread
    out, collected = jax.jit(functional(module))(params, None, x)
    return np.asarray(out), collected, params


def expert(params: Mapping[str, Any], e: int | None, x: np.ndarray) -> np.ndarray:
    """One expert's output; None is the shared one."""
    if e is None:
        weights = [np.asarray(params["shared"][name]["weight"], np.float64) for name in ("gate", "up", "down")]
    else:
        weights = [np.asarray(params["experts"][name][e], np.float64) for name in ("gate", "up", "down")]
    gate, up, down = weights
    inner = x @ gate
    out: np.ndarray = (inner / (1 + np.exp(-inner)) * (x @ up)) @ down
    return out


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    scores: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return scores


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    check_layer(LAYERS[name], X)


@pytest.mark.parametrize("name", LAYERS)
def test_eight_devices_give_what_one_gives(name: str) -> None:
    grid = Grid()
    check_sharded(LAYERS[name], X, sharder=grid, shardings=grid.shardings)


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "noisy"])
def test_the_order_of_tokens_does_not_matter(name: str) -> None:
    order = np.asarray([3, 0, 5, 1, 4, 2])
    out, _, _ = run(LAYERS[name], spread=3.0)
    turned, _, _ = run(LAYERS[name], X[:, order], spread=3.0)
    np.testing.assert_allclose(turned, out[:, order], rtol=1e-5, atol=1e-5)
    backwards, _, _ = run(LAYERS[name], X[::-1], spread=3.0)
    np.testing.assert_allclose(backwards, out[::-1], rtol=1e-5, atol=1e-5)


def test_grouped_matmul() -> None:
    check_grouped_matmul(grouped_matmul)


@pytest.mark.parametrize("normalise", [True, False])
def test_softmax_top_k_is_a_loop_over_tokens(normalise: bool) -> None:
    out, collected, params = run(moe(TopKRouter.Config(top_k=3, normalise=normalise, losses=LOSSES), shared=True))
    x = np.asarray(X, np.float64)
    logits = x @ np.asarray(params["router"]["weight"], np.float64)
    scores = softmax(logits)
    wanted, load = expert(params, None, x), np.zeros(EXPERTS)
    for b, t in np.ndindex(BATCH, LENGTH):
        chosen = np.argsort(-scores[b, t])[:3]
        load[chosen] += 1
        total = scores[b, t, chosen].sum() if normalise else 1.0
        for e in chosen:
            wanted[b, t] += scores[b, t, e] / total * expert(params, e, x[b, t])
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)

    balance = 0.1 * EXPERTS * (load / load.sum() * scores.mean((0, 1))).sum()
    z = 0.01 * (np.log(np.exp(logits).sum(-1)) ** 2).mean()
    told = {name: float(summary.mean) for name, summary in collected.summaries.items()}
    assert told == {
        "router/load_balance": pytest.approx(balance, rel=1e-5),
        "router/z": pytest.approx(z, rel=1e-5),
        "dropped_fraction": 0.0,
        "unserved_fraction": 0.0,
        "max_load": pytest.approx(load.max() / load.mean()),
        "min_load": pytest.approx(load.min() / load.mean()),
    }
    assert float(collected.outputs["router/aux_loss"]) == pytest.approx(balance + z, rel=1e-5)


def test_sigmoids_of_the_best_groups_shifted_by_a_bias() -> None:
    module = moe(SIGMOID).build()
    params = cast("dict[str, Any]", jax.jit(module.init)(jax.random.key(0)))
    bias = np.asarray(normal(EXPERTS, seed=1))
    params["router"]["bias"]["bias"] = jnp.asarray(bias)
    out, collected = functional(module)(params, None, X)

    x = np.asarray(X, np.float64)
    scores = 1 / (1 + np.exp(-x @ np.asarray(params["router"]["weight"], np.float64)))
    wanted, load = np.zeros(x.shape), np.zeros(EXPERTS)
    for b, t in np.ndindex(BATCH, LENGTH):
        shifted = (scores[b, t] + bias).reshape(4, 2)
        kept = np.argsort(-shifted.sum(-1))[:2]  # groups have two experts, so their two best are all
        allowed = [e for e in range(EXPERTS) if e // 2 in kept]
        chosen = sorted(allowed, key=lambda e: -shifted.reshape(-1)[e])[:3]
        load[chosen] += 1
        for e in chosen:
            wanted[b, t] += 2.5 * scores[b, t, e] / scores[b, t, chosen].sum() * expert(params, e, x[b, t])
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    new = collected.updates["router/bias/bias"]
    np.testing.assert_allclose(new, bias + 0.1 * np.sign(load.mean() - load), rtol=1e-6)

    slope = jax.grad(lambda p: (functional(module)(p, None, X)[0] ** 2).sum())(params)["router"]["bias"]["bias"]
    np.testing.assert_array_equal(slope, 0)


def test_experts_choose_the_tokens_that_want_them_most() -> None:
    out, collected, params = run(moe(ExpertChoiceRouter.Config(experts_per_token=1.0)), spread=3.0)
    x = np.asarray(X, np.float64)
    scores = softmax(x @ np.asarray(params["router"]["weight"], np.float64))
    wanted, seen = np.zeros(x.shape), np.zeros((BATCH, LENGTH))
    for b, e in np.ndindex(BATCH, EXPERTS):
        for t in np.argsort(-scores[b, :, e])[:1]:  # 1.0 · 6 tokens / 8 experts, rounded up
            wanted[b, t] += scores[b, t, e] * expert(params, e, x[b, t])
            seen[b, t] += 1
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    assert (seen == 0).any(), "the case is there to be counted"
    assert float(collected.summaries["unserved_fraction"].mean) == pytest.approx((seen == 0).mean())
    assert float(collected.summaries["dropped_fraction"].mean) == 0
    assert float(collected.summaries["max_load"].mean) == 1


def test_what_is_beyond_the_capacity_is_dropped_and_counted() -> None:
    out, collected, params = run(moe(TopKRouter.Config(top_k=2), Capacity.Config(factor=1.0)), spread=3.0)
    x = np.asarray(X, np.float64)
    scores = softmax(x @ np.asarray(params["router"]["weight"], np.float64))
    weights = np.zeros(scores.shape)
    for b, t in np.ndindex(BATCH, LENGTH):
        chosen = np.argsort(-scores[b, t])[:2]
        weights[b, t, chosen] = scores[b, t, chosen] / scores[b, t, chosen].sum()
    room = 2  # 1.0 · 12 assignments of a sequence / 8 experts, rounded up
    wanted, served = np.zeros(x.shape), np.zeros((BATCH, LENGTH))
    for b, e in np.ndindex(BATCH, EXPERTS):
        for t in np.argsort(-weights[b, :, e])[:room]:
            if weights[b, t, e]:
                wanted[b, t] += weights[b, t, e] * expert(params, e, x[b, t])
                served[b, t] += 1
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    dropped = 1 - served.sum() / (BATCH * LENGTH * 2)
    assert dropped > 0, "the case is there to be counted"
    assert float(collected.summaries["dropped_fraction"].mean) == pytest.approx(dropped, rel=1e-5)
    assert float(collected.summaries["unserved_fraction"].mean) == pytest.approx((served == 0).mean(), rel=1e-5)


@pytest.mark.parametrize("router", [TopKRouter.Config(top_k=2), ExpertChoiceRouter.Config(experts_per_token=2.0)])
def test_with_room_for_all_both_dispatches_are_equal(router: Buildable[Router]) -> None:
    roomy, collected, _ = run(moe(router, Capacity.Config(factor=float(EXPERTS))))
    np.testing.assert_allclose(roomy, run(moe(router))[0], rtol=1e-5, atol=1e-6)
    assert float(collected.summaries["dropped_fraction"].mean) == 0


def test_noise_needs_a_key_and_has_the_size_that_is_learnt() -> None:
    module = NoisyGating.Config(dim=DIM, num_experts=EXPERTS).build()
    logits, x = jnp.zeros((200, 50, EXPERTS)), jnp.ones((200, 50, DIM))
    weight = normal(DIM, EXPERTS)
    assert functional(module)({"weight": weight}, None, logits, x)[0] is logits
    noise, _ = functional(module)({"weight": weight}, jax.random.key(0), logits, x)
    wanted = np.log1p(np.exp(np.asarray(weight).sum(0)))
    np.testing.assert_allclose(np.asarray(noise).std((0, 1)), wanted, rtol=3e-2)


def test_routers_compute_in_float32() -> None:
    narrow = X.astype(jnp.bfloat16)
    for router in (TopKRouter.Config(top_k=2), ExpertChoiceRouter.Config(experts_per_token=2.0)):
        module = cast("Any", router).clone(dim=DIM, num_experts=EXPERTS, param_dtype="bfloat16").build()
        params = jax.jit(module.init)(jax.random.key(0))
        assert params["weight"].dtype == jnp.bfloat16
        wide, _ = functional(module)({"weight": params["weight"].astype(jnp.float32)}, None, narrow.astype(jnp.float32))
        same, _ = functional(module)(params, None, narrow)
        jax.tree.map(np.testing.assert_array_equal, same, wide)
    config = moe(TopKRouter.Config(top_k=2))
    config.experts = GatedExperts.Config(hidden_dim=12, compute_dtype="bfloat16")
    assert run(config, narrow)[0].dtype == jnp.bfloat16


def test_balance_costs_its_weight_at_least() -> None:
    even = jnp.full((2, 4, EXPERTS), 1 / EXPERTS)
    load = jnp.full(EXPERTS, 3.0)
    assert float(load_balance_loss(even, even, load)) == pytest.approx(0.01)
    one = jnp.zeros((2, 4, EXPERTS)).at[..., 0].set(1.0)
    assert float(load_balance_loss(one, one, jnp.zeros(EXPERTS).at[0].set(8.0))) == pytest.approx(0.01 * EXPERTS)
    assert float(router_z_loss(jnp.zeros((2, 4, EXPERTS)), even, load)) == pytest.approx(1e-3 * np.log(EXPERTS) ** 2)


def lm() -> CausalLM.Config:
    block = Block.Config(
        attention=Attention.Config(num_heads=2, head_dim=4), ffn=GatedFeedForward.Config(hidden_dim=12)
    )
    return CausalLM.Config(
        vocab_size=11, dim=DIM, layers=Repeat.Config(num_layers=2, layer=Remat.Config(layer=block)), head=None
    )


def in_place_of_a_feed_forward(router: Buildable[Router]) -> CausalLM.Config:
    new = moe(router, shared=True)
    return replace(lm(), role("ffn"), MoE.Config(num_experts=EXPERTS, router=new.router, experts=new.experts))


TOKENS = np.random.default_rng(0).integers(0, 11, (2, 7))
TEXT = {"tokens": jnp.asarray(TOKENS[:, :-1], jnp.int32), "targets": jnp.asarray(TOKENS[:, 1:], jnp.int32)}


def test_it_takes_the_place_of_every_feed_forward() -> None:
    model = as_model(in_place_of_a_feed_forward(TopKRouter.Config(top_k=2, losses=LOSSES)).build())
    gate = cast("Any", model.specs())["layers"]["ffn"]["experts"]["gate"]
    assert gate.shape == (2, EXPERTS, DIM, 12)
    assert gate.axes == ("layers", "expert", "embed", "mlp")
    params = jax.jit(model.init)(jax.random.key(0))
    (loss, metrics), slopes = jax.jit(
        jax.value_and_grad(lambda p: model.loss(p, TEXT, key=jax.random.key(0), train=True), has_aux=True)
    )(params)
    assert float(loss) == pytest.approx(float(metrics["loss"][0] + metrics["aux_loss"][0]), rel=1e-6)
    assert float(metrics["layers/ffn/dropped_fraction"][0]) == 0
    assert all(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(slopes)), "all parameters are learnt"
    # The layers' losses add up; their reports are means.
    reported = sum(float(metrics[f"layers/ffn/router/{name}"][0]) for name in LOSSES)
    assert float(metrics["aux_loss"][0]) == pytest.approx(2 * reported, rel=1e-5)


def test_text_is_read_piece_by_piece_as_at_once() -> None:
    block = Block.Config(dim=DIM, attention=Attention.Config(num_heads=2, head_dim=4), ffn=moe(SIGMOID, shared=True))
    module = block.build()
    check_extend(module, jax.jit(module.init)(jax.random.key(0)), normal(3, 8, DIM))


def test_biases_are_assigned_and_even_the_load() -> None:
    router = TopKRouter.Config(top_k=2, score=partial_for(jax.nn.sigmoid), bias=BalancingBias.Config(rate=0.02))
    model = as_model(in_place_of_a_feed_forward(router).build())
    params = jax.jit(model.init)(jax.random.key(0))

    @jax.jit
    def step(params: ArrayTree) -> tuple[ArrayTree, jax.Array]:
        _, (metrics, updates) = model.loss_and_updates(params, TEXT, key=jax.random.key(0), train=True)
        assert {path: x.shape for path, x in updates.items()} == {"layers/ffn/router/bias/bias": (2, EXPERTS)}
        return model.updated(params, updates), metrics["layers/ffn/max_load"][0]

    loads = []
    new = params
    for _ in range(60):
        new, load = step(new)
        loads.append(float(load))
    assert np.mean(loads[-10:]) < 0.7 * loads[0], f"the load didn't get more even: {loads}"
    moved = jax.tree.map(lambda old, new: bool(jnp.any(old != new)), params, new)
    paths = [jax.tree_util.keystr(p, simple=True, separator="/") for p, m in jax.tree.leaves_with_path(moved) if m]
    assert paths == ["layers/ffn/router/bias/bias"]
    spec = cast("Any", model.specs())["layers"]["ffn"]["router"]["bias"]["bias"]
    assert not spec.weight_decay
    assert not spec.trainable


def test_flops_count_the_experts_that_a_token_meets() -> None:
    one_expert, router, shared = 6 * 3 * DIM * 12, 6 * DIM * EXPERTS, 6 * 3 * DIM * 4
    top_2 = moe(TopKRouter.Config(top_k=2), shared=True).build()
    assert top_2.training_flops_per_token(100) == 2 * one_expert + router + shared
    noisy = moe(TopKRouter.Config(top_k=1, noise=NoisyGating.Config())).build()
    assert noisy.training_flops_per_token(100) == one_expert + 2 * router
    choice = moe(ExpertChoiceRouter.Config(experts_per_token=1.5)).build()
    assert choice.training_flops_per_token(100) == 1.5 * one_expert + router


def test_flops_are_those_that_the_compiler_counts() -> None:
    """Of matmuls of equal groups: those of groups of any sizes it counts as if every row met every expert."""
    dim, length = 64, 128
    config = moe(TopKRouter.Config(top_k=2), Capacity.Config(factor=1.0)).clone(
        dim=dim, experts=GatedExperts.Config(hidden_dim=96, dispatch=Capacity.Config(factor=1.0))
    )
    module = config.build()

    def loss(params: ArrayTree, x: jax.Array) -> jax.Array:
        return (functional(module)(params, None, x)[0] ** 2).sum()

    params = jax.eval_shape(module.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((2, length, dim), jnp.float32)
    analysis = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(params, x).cost_analysis()
    assert analysis is not None
    assert module.training_flops_per_token(length) * 2 * length == pytest.approx(analysis["flops"], rel=2e-2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: moe(TopKRouter.Config(top_k=9)).build(), r"top_k is between 1 and num_experts \(8\), got 9"),
        (lambda: moe(ExpertChoiceRouter.Config(experts_per_token=0.0)).build(), "more than 0 and at most"),
        (lambda: Capacity.Config(factor=0.0).build(), "more than 0, got 0"),
        (lambda: AllToAll.Config(room=0.0).build(), "more than 0, or None for the worst case, got 0"),
        (lambda: best_scores_of_best_groups(X, k=3, num_groups=8, num_kept_groups=2), "can't give 3 a token"),
        (lambda: best_scores_of_best_groups(X, k=1, num_groups=3), "8 experts in 3 groups"),
    ],
)
def test_what_can_not_be(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
