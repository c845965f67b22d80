"""Steps that are skipped leave everything as it was, bit for bit, and say so."""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import Buildable, config_for
from ax_trainer import (
    Learner,
    ParameterAverage,
    SkipNonFinite,
    SkipSpikes,
    TrainState,
    compile_step,
    init_state,
    train_step,
)
from ax_trainer._skipping import SkippingState
from ax_trainer.protocols import Batch, Metrics, SkipRule
from ax_trainer.testing import ArraySpec, BigramModel, BigramParams, SingleDevice, bigram_batches

BATCHES = bigram_batches(4)
PLACE = SingleDevice()


class Moody(BigramModel):
    """Multiplies its loss with what the batch says, and counts its steps in a parameter that is a state."""

    def specs(self) -> dict[str, ArraySpec]:
        return {**super().specs(), "count": ArraySpec((1,), (None,))}

    def init(self, key: jax.Array, /) -> BigramParams:
        return {**super().init(key), "count": jnp.full((1,), -0.0)}

    def loss(self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool) -> tuple[jax.Array, Metrics]:
        loss, metrics = super().loss(params, batch, key=key, train=train)
        loss = loss * batch["mood"]
        return loss, {**metrics, "loss": (loss, metrics["loss"][1])}

    def loss_and_updates(
        self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, tuple[Metrics, jax.Array]]:
        loss, metrics = self.loss(params, batch, key=key, train=train)
        return loss, (metrics, params["count"] + batch["mood"][None])

    def updated(self, params: BigramParams, updates: jax.Array, /) -> BigramParams:
        return {**params, "count": updates}


def run(
    moods: list[float], *skip: Buildable[SkipRule]
) -> tuple[list[TrainState[BigramParams]], list[dict[str, float]]]:
    """States before, between and after steps on batches of these moods, and the steps' metrics."""
    model = Moody(dropout=0.0)
    cfg = Learner.Config(
        schedule=config_for(optax.linear_schedule)(init_value=1e-2, end_value=1e-3, transition_steps=10),
        weight_decay=0.1,
        clip_norm=1.0,
        average=ParameterAverage.Config(),
        skip=skip,
    )
    optimizer = cfg.build().for_specs(model.specs())
    batches = [{**BATCHES[i % len(BATCHES)], "mood": np.asarray(mood, np.float32)} for i, mood in enumerate(moods)]
    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in batches[0].items()}
    step = compile_step(model, optimizer, PLACE, shapes)
    state = init_state(model, optimizer, PLACE, seed=0)
    states, seen = [jax.device_get(state)], []
    for batch in batches:
        state, metrics = step(state, PLACE.put(batch))
        states.append(jax.device_get(state))
        seen.append({name: float(value) for name, (value, _) in metrics.items()})
    return states, seen


def bits(tree: object) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def inner(state: TrainState[BigramParams]) -> object:
    """What the optimizer remembers that skips."""
    return cast("SkippingState", state.opt_state).inner_state


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_step_that_is_not_finite_changes_nothing(bad: float) -> None:
    states, metrics = run([1.0, bad, 1.0], SkipNonFinite.Config())
    assert [each["skipped"] for each in metrics] == [0.0, 1.0, 0.0]
    before, after = states[1], states[2]
    assert bits(after.params) == bits(before.params)
    assert bits(inner(after)) == bits(inner(before))
    assert int(after.step) == int(before.step) + 1, "the next step draws other random numbers"
    assert metrics[2]["learning_rate"] < metrics[0]["learning_rate"], "after one update, not two"
    assert np.isfinite(metrics[2]["loss"])


def test_good_steps_are_those_of_an_optimizer_that_skips_none() -> None:
    (careful, metrics), (plain, _) = run([1.0, 1.0], SkipNonFinite.Config()), run([1.0, 1.0])
    assert bits(careful[-1].params) == bits(plain[-1].params)
    assert bits(inner(careful[-1])) == bits(plain[-1].opt_state)
    assert "skipped" in metrics[0]


def test_a_spike_is_skipped_after_the_warm_up() -> None:
    rule = SkipSpikes.Config(factor=4.0, deviations=None, warm_up=3, decay=0.9)
    _, metrics = run([1.0, 40.0, 1.0, 1.0, 400.0, 1.0], rule)
    assert [each["skipped"] for each in metrics] == [0, 0, 0, 0, 1, 0]
    assert metrics[4]["grad_norm"] > 100, "it is reported as it was"


def test_any_rule_may_skip() -> None:
    spikes = SkipSpikes.Config(of="loss", factor=4.0, warm_up=1)
    _, metrics = run([1.0, np.nan, 100.0, 1.0], SkipNonFinite.Config(), spikes)
    assert [each["skipped"] for each in metrics] == [0, 1, 1, 0]


def judged(rule: SkipSpikes, values: list[float]) -> tuple[list[bool], list[tuple[float, float]]]:
    state, skips, moments = rule.init(), [], []
    for value in values:
        verdict, state = rule.judge(state, loss=jnp.float32(0), grad_norm=jnp.float32(value))  # type: ignore[assignment]
        skips.append(bool(verdict))
        moments.append((float(state.mean), float(state.variance)))
    return skips, moments


def test_the_moments_are_plain_at_first_and_exponential_then() -> None:
    values = np.random.default_rng(0).uniform(1, 2, 12)
    _, moments = judged(SkipSpikes.Config(decay=0.9, warm_up=100).build(), list(values))
    for n in range(1, 11):
        np.testing.assert_allclose(moments[n - 1], (values[:n].mean(), values[:n].var()), rtol=1e-5, atol=1e-6)
    mean, variance = moments[9]
    new_mean = 0.9 * mean + 0.1 * values[10]
    new_variance = 0.9 * (variance + mean**2) + 0.1 * values[10] ** 2 - new_mean**2
    np.testing.assert_allclose(moments[10], (new_mean, new_variance), rtol=1e-5)


def test_a_level_that_stays_is_accepted_after_a_while_and_what_is_not_finite_never_counts() -> None:
    rule = SkipSpikes.Config(factor=2.0, deviations=None, decay=0.8, warm_up=2).build()
    skips, moments = judged(rule, [1.0, 1.0, np.inf, np.nan, *[8.0] * 20])
    assert skips[:6] == [False, False, True, True, True, True]
    assert not skips[-1]
    assert moments[1] == moments[3] == (1.0, 0.0)


def test_nothing_of_it_is_in_a_step_that_skips_none() -> None:
    optimizer = (
        Learner.Config(schedule=config_for(optax.constant_schedule)(value=0.1)).build().for_specs(BigramModel().specs())
    )
    state = init_state(BigramModel(), optimizer, PLACE, seed=0)
    text = str(jax.make_jaxpr(train_step(BigramModel(dropout=0.0), optimizer))(state, PLACE.put(BATCHES[0])))
    assert "is_finite" not in text


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="needs a limit"):
        SkipSpikes.Config(factor=None, deviations=None).build()
    with pytest.raises(ValueError, match=r"warm_up >= 1, got 0\.9 and 0"):
        SkipSpikes.Config(decay=0.9, warm_up=0).build()
