"""z-loss and label smoothing against their definitions, and around any other cross-entropy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import built, partial_for
from ax_layers import cross_entropy, regularised_cross_entropy
from ax_layers.testing import check_cross_entropy_fn


def inputs() -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    hidden, weight = rng.standard_normal((7, 5)), rng.standard_normal((11, 5))
    return jnp.asarray(hidden, jnp.float32), jnp.asarray(weight, jnp.float32), jnp.asarray(rng.integers(0, 11, 7))


def test_it_is_the_plain_one_where_nothing_is_asked() -> None:
    check_cross_entropy_fn(regularised_cross_entropy)


def test_against_the_definitions() -> None:
    hidden, weight, targets = inputs()

    def wanted(hidden: jax.Array, weight: jax.Array) -> jax.Array:
        log_p = jax.nn.log_softmax(hidden @ weight.T)
        labels = 0.9 * jax.nn.one_hot(targets, 11, dtype=jnp.float32) + 0.1 / 11
        return -(labels * log_p).sum(axis=-1) + 1e-2 * jax.nn.logsumexp(hidden @ weight.T, axis=-1) ** 2

    def got(hidden: jax.Array, weight: jax.Array) -> jax.Array:
        return regularised_cross_entropy(hidden, weight, targets, z_loss=1e-2, label_smoothing=0.1)[0]

    np.testing.assert_allclose(got(hidden, weight), wanted(hidden, weight), rtol=1e-5)
    cotangent = jnp.arange(7, dtype=jnp.float32)
    grads, wanted_grads = (jax.vjp(fn, hidden, weight)[1](cotangent) for fn in (got, wanted))
    for a, b in zip(grads, wanted_grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_it_stands_around_another_in_a_config() -> None:
    hidden, weight, targets = inputs()
    inner = partial_for(cross_entropy)
    fn = partial_for(regularised_cross_entropy, base=built(inner), z_loss=0.5).build()
    loss, log_z = fn(hidden, weight, targets, logit_cap=2.0)
    plain, plain_log_z = cross_entropy(hidden, weight, targets, logit_cap=2.0)
    np.testing.assert_allclose(loss, plain + 0.5 * plain_log_z**2, rtol=1e-6)
    np.testing.assert_array_equal(log_z, plain_log_z)


def test_smoothed_labels_and_capped_logits() -> None:
    with pytest.raises(ValueError, match="label_smoothing needs the mean of all logits"):
        regularised_cross_entropy(*inputs(), logit_cap=2.0, label_smoothing=0.1)
