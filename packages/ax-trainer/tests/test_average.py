"""Averages of parameters, against sums in numpy and optax's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import (
    Learner,
    ParameterAverage,
    ParameterGroup,
    ScheduleFree,
    TrainState,
    averaged,
    compile_step,
    init_state,
    uniform_from,
)
from ax_trainer.testing import BigramModel, BigramParams, MemoryCheckpointer, SingleDevice, bigram_batches

BATCHES = bigram_batches(6)
MODEL, PLACE = BigramModel(dropout=0.0), SingleDevice()
SHAPES = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in BATCHES[0].items()}
RATE = config_for(optax.constant_schedule)(value=1e-2)


def states(cfg: Learner.Config) -> list[TrainState[BigramParams]]:
    """Before the first step and after each."""
    optimizer = cfg.build().for_specs(MODEL.specs())
    step = compile_step(MODEL, optimizer, PLACE, SHAPES)
    state = init_state(MODEL, optimizer, PLACE, seed=0)
    seen = [jax.tree.map(jnp.copy, state)]
    for batch in BATCHES:
        state, _ = step(state, PLACE.put(batch))
        seen.append(jax.tree.map(jnp.copy, state))
    return seen


def test_an_exponential_average() -> None:
    decay = config_for(optax.constant_schedule)(value=0.9)
    seen = states(Learner.Config(schedule=RATE, average=ParameterAverage.Config(decay=decay)))
    want = np.asarray(seen[0].params["head"], np.float64)
    for state in seen[1:]:
        want = 0.9 * want + 0.1 * np.asarray(state.params["head"], np.float64)
    np.testing.assert_allclose(averaged(seen[-1])["head"], want, rtol=1e-6)
    plain = states(Learner.Config(schedule=RATE))[-1]
    np.testing.assert_array_equal(plain.params["head"], seen[-1].params["head"], "training doesn't see it")


@pytest.mark.parametrize("start", [0, 3])
def test_a_uniform_average_of_the_tail(start: int) -> None:
    decay = config_for(uniform_from)(start=start)
    seen = states(Learner.Config(schedule=RATE, average=ParameterAverage.Config(decay=decay)))
    mean = np.mean([np.asarray(state.params["head"], np.float64) for state in seen[start + 1 :]], axis=0)
    np.testing.assert_allclose(averaged(seen[-1])["head"], mean, rtol=1e-6)
    np.testing.assert_array_equal(averaged(seen[start + 1])["head"], seen[start + 1].params["head"])


def test_an_average_in_another_type_comes_back_in_the_parameters() -> None:
    seen = states(Learner.Config(schedule=RATE, average=ParameterAverage.Config(dtype="bfloat16")))
    assert optax.tree.get(seen[-1].opt_state, "average")["head"].dtype == jnp.bfloat16
    got = averaged(seen[-1])
    assert got["head"].dtype == jnp.float32
    assert got["head"].sharding == seen[-1].params["head"].sharding


def test_what_is_not_learnt_is_as_it_is() -> None:
    still = ParameterGroup.Config(patterns=("embedding",), frozen=True)
    for average in (ParameterAverage.Config(), ScheduleFree.Config()):
        final = states(Learner.Config(schedule=RATE, average=average, groups={"still": still}))[-1]
        np.testing.assert_array_equal(averaged(final)["embedding"], final.params["embedding"])
        assert np.abs(np.asarray(averaged(final)["head"]) - final.params["head"]).max() > 1e-5


def test_schedule_free_is_that_of_optax() -> None:
    rule = config_for(optax.scale_by_adam)(b1=0.0, b2=0.95)
    final = states(Learner.Config(schedule=RATE, rule=rule, average=ScheduleFree.Config(b1=0.8)))[-1]
    theirs = optax.contrib.schedule_free(optax.adam(1e-2, b1=0.0, b2=0.95), 1e-2, b1=0.8)
    params = init_state(MODEL, theirs, PLACE, seed=0).params
    with jax.numpy_dtype_promotion("standard"):  # optax needs it
        state = theirs.init(params)
        for n, batch in enumerate(BATCHES):
            key = jax.random.key(n)
            grads = jax.grad(lambda p, b, k: MODEL.loss(p, b, key=k, train=True)[0])(params, PLACE.put(batch), key)
            updates, state = theirs.update(grads, state, params)
            params = optax.apply_updates(params, updates)
        want = optax.contrib.schedule_free_eval_params(state, params)
    np.testing.assert_allclose(final.params["head"], params["head"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(averaged(final)["head"], want["head"], rtol=1e-5, atol=1e-6)


def test_a_state_without_an_average() -> None:
    without = states(Learner.Config(schedule=RATE))[-1]
    with pytest.raises(
        ValueError, match=r"holds no average of its parameters: train with one \(Learner.Config.average\)"
    ):
        averaged(without)
    checkpointer = MemoryCheckpointer()
    checkpointer.save(1, without, {})
    with_one = states(Learner.Config(schedule=RATE, average=ParameterAverage.Config()))[0]
    with pytest.raises(ValueError, match=r"another structure: it lacks .*opt_state/average/head"):
        checkpointer.restore(1, with_one)
