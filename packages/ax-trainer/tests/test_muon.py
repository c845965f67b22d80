"""Muon by specs, against optax's on plain matrices and against orthogonality."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import Muon
from ax_trainer.testing import ArraySpec


@dataclass(frozen=True)
class Projecting(ArraySpec):
    """Says what is summed over."""

    fan_in: tuple[int, ...] = ()


def direction(spec: ArraySpec, gradient: np.ndarray, rms: float = 0.2) -> np.ndarray:
    """Of a first update."""
    cfg = Muon.Config(others=config_for(optax.identity)(), nesterov=False, rms=rms)
    rule = cfg.build().for_specs({"layers": {"weight": spec}})
    params = {"layers": {"weight": jnp.asarray(gradient)}}
    with jax.numpy_dtype_promotion("standard"):  # optax needs it
        updates, _ = jax.jit(rule.update)(params, rule.init(params), params)
    return np.asarray(updates["layers"]["weight"])


def orthogonal(gradient: np.ndarray) -> np.ndarray:
    """optax's Muon of a matrix, without its scaling."""
    muon = optax.contrib.scale_by_muon(nesterov=False, weight_dimension_numbers=optax.contrib.MuonDimensionNumbers())
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = muon.update(jnp.asarray(gradient), muon.init(jnp.asarray(gradient)))
    return np.asarray(updates)


RANDOM = np.random.default_rng(0)


def test_a_stack_of_experts_in_layers_is_many_matrices() -> None:
    gradient = RANDOM.standard_normal((2, 3, 8, 4)).astype(np.float32)
    spec = Projecting((2, 3, 8, 4), ("layers", "expert", "embed", "mlp"), fan_in=(-2,))
    got = direction(spec, gradient)
    for layer in range(2):
        for expert in range(3):
            want = orthogonal(gradient[layer, expert]) * 0.2 * np.sqrt(8)
            np.testing.assert_allclose(got[layer, expert], want, rtol=1e-4, atol=1e-5)
            singular = np.linalg.svd(got[layer, expert] / (0.2 * np.sqrt(8)), compute_uv=False)
            assert ((singular > 0.5) & (singular < 1.3)).all()
    np.testing.assert_allclose(np.sqrt((got**2).mean()), 0.2 * 0.9, rtol=0.15)


@pytest.mark.parametrize("fan_in", [(-3,), (-3, -2)], ids=["into heads", "out of heads"])
def test_heads_and_their_dims_are_one_dim(fan_in: tuple[int, ...]) -> None:
    gradient = RANDOM.standard_normal((6, 2, 5)).astype(np.float32)
    got = direction(Projecting((6, 2, 5), ("embed", "heads", None), fan_in=fan_in), gradient, rms=1.0)
    matrix = gradient.reshape(6, 10) if fan_in == (-3,) else gradient.reshape(12, 5)
    want = orthogonal(matrix).reshape(6, 2, 5) * np.sqrt(max(matrix.shape))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "spec",
    [ArraySpec((7, 4), ("vocab", "embed")), ArraySpec((7, 4), ("layers", "embed")), ArraySpec((4,), ("embed",))],
    ids=["vocabulary", "stacked vectors", "vector"],
)
def test_the_others_are_the_other_rules(spec: ArraySpec) -> None:
    gradient = RANDOM.standard_normal(spec.shape).astype(np.float32)
    np.testing.assert_array_equal(direction(spec, gradient), gradient)
