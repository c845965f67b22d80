"""A planted mistake is found where it was planted: in the forward pass, in a gradient alone, or in a parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_trainer import differences, first_divergence, observe
from ax_trainer.protocols import Batch, Metrics

Weights: TypeAlias = dict[str, dict[str, jax.Array]]
BATCH = {"x": jnp.linspace(-1.0, 1.0, 8).reshape(2, 4)}


@dataclass(frozen=True)
class Stacked:
    """Its parameter's spec."""

    shape: tuple[int, ...] = (3, 4, 4)
    dtype: np.dtype = np.dtype(np.float32)  # noqa: RUF009  # it can't be changed
    axes: tuple[str | None, ...] = ("layers", "embed", None)


@dataclass(frozen=True)
class Tower:
    """Three layers; of the one called ``wrong`` the value or the slope is off."""

    wrong: int | None = None
    in_value: float = 1.0
    in_slope: float = 1.0

    def specs(self) -> object:
        return {"tower": {"weight": Stacked()}}

    def init(self, key: jax.Array, /) -> Weights:
        return {"tower": {"weight": jax.random.normal(key, (3, 4, 4)) / 2}}

    def loss(self, params: Weights, batch: Batch, /, *, key: jax.Array, train: bool) -> tuple[jax.Array, Metrics]:
        loss = self._values(params, batch)[-1].var()
        return loss, {"loss": (loss, jnp.ones(()))}

    def observations(
        self, params: Weights, batch: Batch, /, *, key: jax.Array, train: bool
    ) -> Mapping[str, np.ndarray]:
        return {f"tower.{i}": np.asarray(x) for i, x in enumerate(self._values(params, batch))}

    def _values(self, params: Weights, batch: Batch) -> list[jax.Array]:
        x, values = batch["x"], []
        for i in range(3):
            x = jnp.tanh(x @ params["tower"]["weight"][i])
            if i == self.wrong:
                x = self.in_value * (self.in_slope * x + jax.lax.stop_gradient((1 - self.in_slope) * x))
            values.append(x)
        return values


def record(model: Tower, *, scale: float = 1.0) -> dict[str, np.ndarray]:
    params = jax.tree.map(lambda x: x * scale, model.init(jax.random.key(0)))
    return observe(model, params, BATCH, key=jax.random.key(1))


def test_a_record_is_in_the_order_of_computation() -> None:
    assert list(record(Tower())) == [
        *(f"params/tower/weight.{i}" for i in range(3)),
        *(f"forward/tower.{i}" for i in range(3)),
        "loss",
        *(f"gradients/tower/weight.{i}" for i in (2, 1, 0)),
    ]


def test_gradients_are_those_of_jax() -> None:
    params = Tower().init(jax.random.key(0))
    wanted = jax.grad(lambda p: Tower().loss(p, BATCH, key=jax.random.key(1), train=True)[0])(params)
    found = record(Tower())
    for i in range(3):
        np.testing.assert_allclose(found[f"gradients/tower/weight.{i}"], wanted["tower"]["weight"][i], atol=1e-7)


@pytest.mark.parametrize(
    ("wrong", "first"),
    [
        (Tower(wrong=1, in_value=1.01), "forward/tower.1"),
        (Tower(wrong=2, in_value=math.nan), "forward/tower.2"),
        # The slope of layer 1 is off, and so is that of all before it; what comes after, nearer to the loss, is right.
        (Tower(wrong=1, in_slope=1.01), "gradients/tower/weight.1"),
    ],
)
def test_a_planted_mistake_is_named(wrong: Tower, first: str) -> None:
    found = first_divergence(differences(record(Tower()), record(wrong)), tolerance=1e-4)
    assert found is not None
    assert found.name == first


def test_other_parameters_are_named_before_all_else() -> None:
    found = first_divergence(differences(record(Tower()), record(Tower(), scale=1.01)), tolerance=1e-4)
    assert found is not None
    assert found.name == "params/tower/weight.0"
    assert found.relative == pytest.approx(0.01, rel=1e-3)


def test_equal_records_part_nowhere() -> None:
    assert first_divergence(differences(record(Tower()), record(Tower())), tolerance=0.0) is None


def test_what_is_told_of_a_difference() -> None:
    a = {"x": np.array([[3.0, 4.0], [0.0, 0.0]]), "only a": np.ones(1), "y": np.ones(3), "z": np.array([1.0, np.inf])}
    b = {"z": np.array([1.0, np.inf]), "x": np.array([3.0, 4.0, 0.0, 0.5]), "y": np.ones(4)}
    x, y, z = differences(a, b)
    assert (x.relative, x.largest, x.where, x.a, x.b) == (0.1, 0.5, (1, 1), 0.0, 0.5)
    assert (y.name, y.relative, y.problem) == ("y", math.inf, "the shapes are [3] and [4]")
    assert (z.relative, z.problem) == (0.0, "")
    (nan,) = differences({"x": np.array([1.0, 2.0])}, {"x": np.array([1.0, np.nan])})
    assert (nan.relative, nan.where, nan.problem) == (math.inf, (1,), "1 numbers are finite on one side only")
