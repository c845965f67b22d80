"""How suites compare arrays and make them: against float64, to a tolerance that scales with the largest value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


class Named(Protocol):
    """A case: anything with a name."""

    @property
    def name(self) -> str: ...


class Metafunc(Protocol):
    """What a suite uses of the object that pytest hands to ``pytest_generate_tests``."""

    @property
    def fixturenames(self) -> list[str]: ...

    def parametrize(self, argnames: str, argvalues: Iterable[object], *, ids: Callable[[Named], str]) -> None: ...


def parametrize_cases(metafunc: Metafunc, cases: Iterable[Named]) -> None:
    """Run a test that takes ``case`` once a case."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", list(cases), ids=lambda case: case.name)


def assert_close(
    got: jax.Array, wanted: Float64, *, what: str, tolerances: Mapping[str, float], dtype: jax.typing.DTypeLike
) -> None:
    """``|got − wanted| ≤ tolerance[dtype] × max(1, max |wanted|)`` everywhere; raises AssertionError that says where not."""
    values = np.asarray(got.astype(jnp.float32), np.float64)
    assert values.shape == wanted.shape, f"{what}: shape {values.shape}, wanted {wanted.shape}"
    bound = tolerances[jnp.dtype(dtype).name] * max(1.0, float(np.abs(wanted).max(initial=0.0)))
    errors = np.abs(values - wanted)
    if not (errors <= bound).all():  # written so that NaN fails
        worst = np.unravel_index(np.argmax(np.where(np.isnan(errors), np.inf, errors)), errors.shape)
        raise AssertionError(
            f"{what}: {np.mean(~(errors <= bound)):.2%} of values are off by more than {bound:.2g}; "
            f"the worst, at {tuple(map(int, worst))}, is {values[worst]:.6g} where {wanted[worst]:.6g} is wanted"
        )


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: jax.typing.DTypeLike) -> jax.Array:
    """Standard normal values, rounded to ``dtype``."""
    return jnp.asarray(rng.standard_normal(shape, np.float32)).astype(dtype)


def float64(x: jax.Array) -> Float64:
    """The exact values of ``x``."""
    return np.asarray(x.astype(jnp.float32), np.float64)


def assert_refuses(call: Callable[[], object], *, naming: Iterable[str], what: str) -> None:
    """``call`` raises a ValueError whose message has every word of ``naming``; else AssertionError."""
    try:
        call()
    except ValueError as error:
        message = str(error)
    else:
        raise AssertionError(f"{what} went through, wanted ValueError")
    missing = [word for word in naming if word not in message]
    assert not missing, f"{what}: the error doesn't name {missing}: {message}"
