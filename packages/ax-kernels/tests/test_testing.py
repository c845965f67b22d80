"""The oracles and the suites themselves: gradients by finite differences, and wrong backends that must be caught."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_kernels import attention
from ax_kernels.testing import (
    ATTENTION_CASES,
    CROSS_ENTROPY_CASES,
    AttentionCase,
    AttentionSuite,
    CrossEntropySuite,
    attention_case,
    attention_oracle,
    cross_entropy_oracle,
)

STEP = 2.0**-6


def test_case_names_are_unique() -> None:
    for cases in (ATTENTION_CASES, CROSS_ENTROPY_CASES):
        names = [case.name for case in cases]
        assert len(set(names)) == len(names)


def test_unknown_case() -> None:
    with pytest.raises(KeyError, match=r"no attention case named 'tinny'; there are tiny, llama2_7b"):
        attention_case("tinny")


def test_attention_oracle_by_finite_differences() -> None:
    case = AttentionCase(
        name="small", query_length=7, key_length=7, head_dim=4, logit_cap=2.0, window=5, layout="packed"
    )
    arrays, options = case.arrays(), case.options()
    d_out = jnp.ones_like(arrays[0]).at[:, ::2].set(-0.5)
    answer = attention_oracle(*arrays, d_out, options)
    for index, at in ((0, (0, 3, 1, 2)), (1, (0, 2, 1, 3)), (2, (0, 4, 0, 1))):

        def loss(step: float, index: int = index, at: tuple[int, ...] = at) -> float:
            moved = [x.at[at].add(step) if i == index else x for i, x in enumerate(arrays)]
            output = attention_oracle(moved[0], moved[1], moved[2], d_out, options).output
            return float((output * np.asarray(d_out, np.float64)).sum())

        np.testing.assert_allclose(answer[1 + index][at], (loss(STEP) - loss(-STEP)) / (2 * STEP), rtol=2e-3, atol=1e-6)


def test_cross_entropy_oracle_by_finite_differences() -> None:
    hidden, weight, targets = CROSS_ENTROPY_CASES[4].arrays()
    hidden, targets = hidden[:3], jnp.asarray([0, 5, 700], jnp.int32)
    d_loss, d_log_z = jnp.asarray([1.0, 0.5, -2.0]), jnp.asarray([0.25, 0.0, 1.0])
    oracle = partial(cross_entropy_oracle, logit_cap=1.5)
    answer = oracle(hidden, weight, targets, d_loss, d_log_z)

    def loss(hidden: jax.Array, weight: jax.Array) -> float:
        moved = oracle(hidden, weight, targets, d_loss, d_log_z)
        return float(moved.loss @ np.asarray(d_loss, np.float64) + moved.log_z @ np.asarray(d_log_z, np.float64))

    for at in ((0, 3), (2, 7)):
        by_step = (loss(hidden.at[at].add(STEP), weight) - loss(hidden.at[at].add(-STEP), weight)) / (2 * STEP)
        np.testing.assert_allclose(answer.hidden_gradient[at], by_step, rtol=2e-3)
    by_step = (loss(hidden, weight.at[5, 1].add(STEP)) - loss(hidden, weight.at[5, 1].add(-STEP))) / (2 * STEP)
    np.testing.assert_allclose(answer.weight_gradient[5, 1], by_step, rtol=2e-3)


def _ignores_window(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    /,
    *,
    scale: float,
    causal: bool,
    window: int | None = None,
    logit_cap: float | None = None,
    query_positions: jax.Array | None = None,
    key_positions: jax.Array | None = None,
    query_segments: jax.Array | None = None,
    key_segments: jax.Array | None = None,
) -> jax.Array:
    del window
    return attention.base(
        query,
        key,
        value,
        scale=scale,
        causal=causal,
        logit_cap=logit_cap,
        query_positions=query_positions,
        key_positions=key_positions,
        query_segments=query_segments,
        key_segments=key_segments,
    )


class _IgnoresWindow(AttentionSuite):
    attention = staticmethod(_ignores_window)


class _SaysItLacksWindow(_IgnoresWindow):
    unsupported = frozenset({"window"})


def test_suite_catches_an_ignored_option() -> None:
    with pytest.raises(AssertionError, match=r"window: output: .* of values are off by more than"):
        _IgnoresWindow().test_output(attention_case("window"))
    with pytest.raises(AssertionError, match=r"window \(window unsupported\) went through"):
        _SaysItLacksWindow().test_output(attention_case("window"))


class _Unstable(CrossEntropySuite):
    @staticmethod
    def cross_entropy(
        hidden: jax.Array, weight: jax.Array, targets: jax.Array, /, *, logit_cap: float | None = None
    ) -> tuple[jax.Array, jax.Array]:
        del logit_cap
        logits = hidden @ weight.T
        log_z = jnp.log(jnp.exp(logits).sum(axis=-1))
        return log_z - jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0], log_z


def test_suite_catches_overflow() -> None:
    case = next(case for case in CROSS_ENTROPY_CASES if case.name == "large_logits")
    with pytest.raises(AssertionError, match="large_logits: loss"):
        _Unstable().test_values(case)
    with pytest.raises(AssertionError, match="capped: loss"):
        _Unstable().test_values(next(case for case in CROSS_ENTROPY_CASES if case.name == "capped"))
