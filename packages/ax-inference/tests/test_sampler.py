import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_inference import Sampler

PROBABILITIES = np.array([0.05, 0.4, 0.1, 0.3, 0.15])


def _cut(probabilities: np.ndarray, temperature: float, top_k: int | None, top_p: float | None) -> np.ndarray:
    """The distribution by its definition, one token at a time, in float64."""
    weights = probabilities ** (1 / temperature)
    weights /= weights.sum()
    order = np.argsort(-weights)[:top_k]
    left = weights[order].sum()
    kept, share = [], 0.0
    for token in order:
        kept.append(token)
        share += weights[token] / left
        if top_p is not None and share >= top_p:
            break
    result = np.zeros_like(weights)
    result[kept] = weights[kept] / weights[kept].sum()
    return result


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    list(itertools.product([0.5, 1.0, 2.5], [None, 1, 3, 9], [None, 0.05, 0.55, 0.8, 1.0])),
)
def test_distribution_is_exact(temperature: float, top_k: int | None, top_p: float | None) -> None:
    sampler = Sampler.Config(temperature=temperature, top_k=top_k, top_p=top_p).build()
    got = jax.nn.softmax(sampler.log_weights(jnp.asarray(np.log(PROBABILITIES), jnp.float32)))
    wanted = _cut(PROBABILITIES, temperature, top_k, top_p)
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(got) == 0, wanted == 0)


def test_draws_follow_the_distribution() -> None:
    sampler = Sampler.Config(temperature=1.5, top_k=4, top_p=0.9).build()
    num_draws = 20_000
    logits = jnp.broadcast_to(jnp.asarray(np.log(PROBABILITIES), jnp.float32), (num_draws, 5))
    counts = np.bincount(sampler(logits, jax.random.split(jax.random.key(0), num_draws)), minlength=5)
    wanted = _cut(PROBABILITIES, 1.5, 4, 0.9)
    assert (counts[wanted == 0] == 0).all()
    expected = num_draws * wanted[wanted > 0]
    chi_square = ((counts[wanted > 0] - expected) ** 2 / expected).sum()
    assert chi_square < 16.3, "beyond the 99.9th percentile at 3 degrees of freedom"


def test_ties_with_the_last_kept_are_kept() -> None:
    weights = Sampler.Config(top_k=2).build().log_weights(jnp.asarray([1.0, 3.0, 1.0, 0.0]))
    np.testing.assert_array_equal(np.isneginf(weights), [False, False, False, True])


def test_greedy_takes_the_first_maximum_whatever_the_key() -> None:
    sampler = Sampler.Config(temperature=0.0, top_k=3, top_p=0.5).build()
    logits = jnp.asarray([[0.0, 2.0, 2.0], [3.0, 2.0, 1.0]])
    for seed in range(3):
        tokens = sampler(logits, jax.random.split(jax.random.key(seed), 2))
        assert tokens.dtype == jnp.int32
        np.testing.assert_array_equal(tokens, [1, 0])
    with pytest.raises(ValueError, match="greedy Sampler"):
        sampler.log_weights(logits)


def test_one_row_and_many_dims() -> None:
    sampler = Sampler.Config().build()
    keys = jax.random.split(jax.random.key(0), (2, 3))
    logits = jax.random.normal(jax.random.key(1), (2, 3, 7))
    tokens = sampler(logits, keys)
    assert tokens.shape == (2, 3)
    assert int(sampler(logits[1, 2], keys[1, 2])) == int(tokens[1, 2])
    with pytest.raises(ValueError, match=r"a key a row of logits \(2, 3, 7\); got keys of shape \(3,\)"):
        sampler(logits, keys[0])


def test_equal_settings_are_equal_samplers() -> None:
    one, same, other = (Sampler.Config(top_k=k).build() for k in (5, 5, 6))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Sampler.Config(temperature=-0.5), r"temperature of at least 0 .*got -0\.5"),
        (Sampler.Config(temperature=float("nan")), "finite temperature.*got nan"),
        (Sampler.Config(top_k=0), "top_k of at least 1, or None.*got 0"),
        (Sampler.Config(top_p=0.0), r"top_p above 0.*got 0\.0"),
        (Sampler.Config(top_p=1.5), r"at most 1.*got 1\.5"),
    ],
)
def test_ranges(config: Sampler.Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config.build()
