"""SOAP against the paper's algorithm in numpy, one matrix at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import SOAP
from ax_trainer.testing import ArraySpec

B1, B2, EPS = 0.9, 0.8, 1e-8


def gradients(num_inputs: int, num_outputs: int) -> np.ndarray:
    """Of seven steps, of two layers."""
    random, shape = np.random.default_rng(0), (num_inputs, num_outputs)
    return (random.standard_normal((7, 2, *shape)) * random.uniform(0.1, 2, (1, 1, *shape))).astype(np.float32)


def by_hand(gradients: np.ndarray, *, every: int, both: bool) -> list[np.ndarray]:
    """Algorithm 3 of the paper, with Adam's corrections; the first gradient makes the first bases only."""
    m, n = gradients.shape[1:]
    left, right, mean, square = np.zeros((m, m)), np.zeros((n, n)), np.zeros((m, n)), np.zeros((m, n))
    q_left, q_right = np.eye(m), np.eye(n)
    directions = []
    for t, g in enumerate(gradients.astype(np.float64)):
        left, right = B2 * left + (1 - B2) * g @ g.T, B2 * right + (1 - B2) * g.T @ g
        if t == 0:
            q_left, q_right = np.linalg.eigh(left)[1], np.linalg.eigh(right)[1] if both else q_right
        elif t % every == 0:
            q_left, q_right = np.linalg.qr(left @ q_left)[0], np.linalg.qr(right @ q_right)[0] if both else q_right
        if t == 0:
            directions.append(np.zeros((m, n)))
            continue
        mean = B1 * mean + (1 - B1) * g
        square = B2 * square + (1 - B2) * (q_left.T @ g @ q_right) ** 2
        turned = q_left.T @ mean @ q_right / (1 - B1**t)
        directions.append(q_left @ (turned / (np.sqrt(square / (1 - B2**t)) + EPS)) @ q_right.T)
    return directions


def directions(rule: object, each: np.ndarray) -> list[np.ndarray]:
    params, seen = {"layers": jnp.zeros(each.shape[1:])}, []
    with jax.numpy_dtype_promotion("standard"):  # optax needs it
        state, update = rule.init(params), jax.jit(rule.update)  # type: ignore[attr-defined]
        for gradient in each:
            updates, state = update({"layers": jnp.asarray(gradient)}, state, params)
            seen.append(np.asarray(updates["layers"]))
    return seen


def soap(num_outputs: int, *, refresh_every: int = 3, max_dim: int = 100) -> object:
    spec = ArraySpec((2, 4, num_outputs), ("layers", "embed", "mlp"))
    cfg = SOAP.Config(b1=B1, b2=B2, eps=EPS, refresh_every=refresh_every, max_dim=max_dim)
    return cfg.build().for_specs({"layers": spec})


@pytest.mark.parametrize(("num_outputs", "max_dim"), [(4, 100), (6, 4)], ids=["both sides", "one side"])
def test_is_the_algorithm_of_the_paper(num_outputs: int, max_dim: int) -> None:
    each = gradients(4, num_outputs)
    got = directions(soap(num_outputs, max_dim=max_dim), each)
    for layer in range(2):
        want = by_hand(each[:, layer], every=3, both=max_dim > num_outputs)
        for step, direction in enumerate(want):
            np.testing.assert_allclose(got[step][layer], direction, rtol=1e-3, atol=1e-3, err_msg=str(step))


def test_without_bases_it_is_adam() -> None:
    adam, each = config_for(optax.scale_by_adam)(b1=B1, b2=B2, eps=EPS).build(), gradients(4, 6)
    for got, want in zip(directions(soap(6, max_dim=3), each), directions(adam, each), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_side_that_is_too_large_has_no_basis() -> None:
    state = soap(6, max_dim=4).init({"layers": jnp.zeros((2, 4, 6))})  # type: ignore[attr-defined]
    shapes = {name: optax.tree.get(state, name)["layers"].shape for name in ("input_basis", "output_basis")}
    assert shapes == {"input_basis": (2, 4, 4), "output_basis": (0,)}
    with pytest.raises(ValueError, match="every 1 or more steps, got 0"):
        soap(6, refresh_every=0)
