"""Groups of parameters: each learnt in its own way, equal to optax put together by hand."""

from __future__ import annotations

import jax
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import Learner, ParameterGroup, abstract_state, compile_step, init_state
from ax_trainer.protocols import Metrics, Optimizer, SupportsFreezing
from ax_trainer.testing import BigramModel, BigramParams, SingleDevice, bigram_batches

BATCHES = bigram_batches(3)
SHAPES = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in BATCHES[0].items()}
MODEL = BigramModel(dropout=0.0)
RATE = config_for(optax.linear_schedule)(init_value=1e-2, end_value=1e-3, transition_steps=10)
GROUPS = {
    "table": ParameterGroup.Config(patterns=("emb*",), learning_rate_factor=0.5, weight_decay=0.0),
    "vectors": ParameterGroup.Config(
        patterns=("bias",),
        rule=config_for(optax.trace)(decay=0.9),
        schedule=config_for(optax.constant_schedule)(value=0.1),
    ),
}


def trained(optimizer: Optimizer) -> tuple[BigramParams, list[Metrics]]:
    place = SingleDevice()
    step = compile_step(MODEL, optimizer, place, SHAPES)
    state, seen = init_state(MODEL, optimizer, place, seed=0), []
    for batch in BATCHES:
        state, metrics = step(state, place.put(batch))
        seen.append(metrics)
    return state.params, seen


def learner(**groups: ParameterGroup.Config) -> Optimizer:
    cfg = Learner.Config(schedule=RATE, weight_decay=0.1, clip_norm=0.5, groups=dict(groups))
    return cfg.build().for_specs(MODEL.specs())


def test_equals_optax_partitioned_by_hand() -> None:
    rate = RATE.build()
    by_hand = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.partition(
            {
                "table": optax.adamw(lambda n: 0.5 * rate(n), b1=0.9, b2=0.95, weight_decay=0.0),
                "vectors": optax.sgd(0.1, momentum=0.9),
                "default": optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=0.1),
            },
            {"embedding": "table", "bias": "vectors", "head": "default"},
        ),
    )
    (want, _), (got, metrics) = trained(by_hand), trained(learner(**GROUPS))
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-8, err_msg=name)
    assert {name for name in metrics[0] if "rate" in name} == {
        "learning_rate",
        "learning_rate/table",
        "learning_rate/vectors",
    }
    for n, each in enumerate(metrics):
        np.testing.assert_allclose(each["learning_rate"][0], rate(n), rtol=1e-6)
        np.testing.assert_allclose(each["learning_rate/table"][0], 0.5 * rate(n), rtol=1e-6)
        np.testing.assert_allclose(each["learning_rate/vectors"][0], 0.1, rtol=1e-6)


def test_the_first_group_that_matches_has_the_parameter() -> None:
    fast = ParameterGroup.Config(patterns=("b*", "head"), learning_rate_factor=2.0)
    rest = ParameterGroup.Config(patterns=("*",), learning_rate_factor=3.0)
    _, metrics = trained(learner(fast=fast, rest=rest))
    assert {name for name in metrics[0] if "rate" in name} == {"learning_rate/fast", "learning_rate/rest"}
    with pytest.raises(ValueError, match=r"groups\[fast\] has no parameter: groups that stand before it match all"):
        learner(rest=rest, fast=fast)


def test_frozen_parameters_stay_and_cost_nothing() -> None:
    optimizer = learner(still=ParameterGroup.Config(patterns=("embedding", "bias"), frozen=True))
    assert isinstance(optimizer, SupportsFreezing)
    assert not isinstance(optax.adam(1e-3), SupportsFreezing)
    first = init_state(MODEL, optimizer, SingleDevice(), seed=0).params
    params, metrics = trained(optimizer)
    for name in ("embedding", "bias"):
        np.testing.assert_array_equal(params[name], first[name])
    assert np.abs(np.asarray(params["head"]) - first["head"]).max() > 1e-3
    moments = [x.shape for x in jax.tree.leaves(abstract_state(MODEL, optimizer, SingleDevice()).opt_state) if x.shape]
    assert moments == [(8, 17), (8, 17)], "two moments of the head"

    def loss(head: jax.Array) -> jax.Array:
        batch = SingleDevice().put(BATCHES[0])
        return MODEL.loss({**first, "head": head}, batch, key=jax.random.key(0), train=True)[0]

    norm = np.linalg.norm(jax.grad(loss)(first["head"]))
    np.testing.assert_allclose(metrics[0]["grad_norm"][0], norm, rtol=1e-5, err_msg="what is clipped is learnt")


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"groups\[a\]: the pattern 'embeding' matches no .* nearest are embedding"):
        learner(a=ParameterGroup.Config(patterns=("embeding",)))
    with pytest.raises(ValueError, match="can't be called 'default'"):
        learner(default=ParameterGroup.Config(patterns=("bias",)))
    with pytest.raises(ValueError, match="at least one pattern"):
        learner(a=ParameterGroup.Config(patterns=()))
    with pytest.raises(ValueError, match="learns nothing, so it has no weight_decay or learning_rate_factor"):
        learner(a=ParameterGroup.Config(patterns=("*",), frozen=True, weight_decay=0.0, learning_rate_factor=2.0))
