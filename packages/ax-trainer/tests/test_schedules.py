"""Schedules against their definitions, drawn by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import built, config_for
from ax_trainer import rewarmed, warmup_stable_decay


@pytest.mark.parametrize(
    ("decay", "half", "quarter"),
    [("linear", 0.55, 0.775), ("cosine", 0.55, 0.1 + 0.9 * (1 + 2**-0.5) / 2), ("sqrt", None, 0.55)],
)
def test_up_level_and_down(decay: str, half: float | None, quarter: float) -> None:
    schedule = config_for(warmup_stable_decay)(
        peak_value=1.0,
        warmup_steps=4,
        stable_steps=3,
        decay_steps=8,
        end_value=0.1,
        decay=decay,  # type: ignore[arg-type]
    ).build()
    values = np.asarray(jax.vmap(schedule)(jnp.arange(20)))
    np.testing.assert_allclose(values[:8], [0, 0.25, 0.5, 0.75, 1, 1, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(values[9], quarter, rtol=1e-6)
    if half is not None:
        np.testing.assert_allclose(values[11], half, rtol=1e-6)
    np.testing.assert_allclose(values[15:], 0.1, rtol=1e-6)
    assert (np.diff(values[7:16]) < 0).all()


def test_without_a_warm_up_it_begins_at_the_peak() -> None:
    schedule = warmup_stable_decay(peak_value=2.0, warmup_steps=0, stable_steps=0, decay_steps=4)
    np.testing.assert_allclose(jax.vmap(schedule)(jnp.arange(6)), [2, 1.5, 1, 0.5, 0, 0], rtol=1e-6)


def test_rewarmed_is_what_it_was_and_jumps_nowhere() -> None:
    before = config_for(optax.linear_schedule)(init_value=1.0, end_value=0.0, transition_steps=20)
    after = config_for(optax.linear_schedule)(init_value=0.8, end_value=0.0, transition_steps=8)
    schedule = config_for(rewarmed)(before=built(before), after=built(after), start=10, warmup_steps=4).build()
    values = np.asarray(jax.vmap(schedule)(jnp.arange(20)))
    np.testing.assert_allclose(values[:10], np.linspace(1.0, 0.55, 10), rtol=1e-6)
    np.testing.assert_allclose(values[10:14], [0.5, 0.475, 0.45, 0.425], rtol=1e-6)
    np.testing.assert_allclose(values[14:18], [0.4, 0.3, 0.2, 0.1], rtol=1e-5)
    assert np.abs(np.diff(values)).max() < 0.11


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="decay_steps >= 1, got 1, 1 and 0"):
        warmup_stable_decay(peak_value=1.0, warmup_steps=1, stable_steps=1, decay_steps=0)
    with pytest.raises(ValueError, match="warmup_steps >= 0, got 1 and -1"):
        rewarmed(before=jnp.asarray, after=jnp.asarray, start=1, warmup_steps=-1)
