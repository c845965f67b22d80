"""The tests that every backend of the grouped matmul passes, as a class to inherit.

class TestMine(GroupedMatmulSuite):
    grouped_matmul = staticmethod(my_package.grouped_matmul)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ._comparison import Float64, Metafunc, assert_close, assert_refuses, float64, normal, parametrize_cases
from ._grouped_matmul_cases import GROUPED_MATMUL_CASES, GroupedMatmulCase


class GroupedMatmul(Protocol):
    """The signature of a backend; `ax_kernels.grouped_matmul.base` says what it means."""

    def __call__(self, rows: jax.Array, weights: jax.Array, group_sizes: jax.Array, /) -> jax.Array: ...


class GroupedMatmulSuite:
    """Inherit it and set `grouped_matmul`."""

    grouped_matmul: ClassVar[GroupedMatmul]
    """The backend under test, wrapped in ``staticmethod``."""

    cases: ClassVar[tuple[GroupedMatmulCase, ...]] = GROUPED_MATMUL_CASES
    tolerances: ClassVar[Mapping[str, float]] = MappingProxyType({"float32": 5e-6, "bfloat16": 1e-2})
    """By dtype, relative to the largest value wanted (or to 1)."""

    def pytest_generate_tests(self, metafunc: Metafunc) -> None:
        """Run each test that takes a case once for every one of `cases`."""
        parametrize_cases(metafunc, self.cases)

    def test_values_and_gradients(self, case: GroupedMatmulCase) -> None:
        """The products are those of NumPy in float64, group by group; so are the gradients, also when rematerialised."""
        rows, weights, sizes = case.arrays()
        d_out = normal(np.random.default_rng(1), (rows.shape[0], case.out_dim), case.dtype)

        @jax.jit
        def run(rows: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            call = jax.checkpoint(lambda rows, weights: self.grouped_matmul(rows, weights, sizes))
            out, pull_back = jax.vjp(call, rows, weights)
            d_rows, d_weights = pull_back(d_out)
            return out, d_rows, d_weights

        got = run(rows, weights)
        names = ("output", "rows' gradient", "weights' gradient")
        for name, array, value, want in zip(
            names, (rows, rows, weights), got, _wanted(case, rows, weights, d_out), strict=True
        ):
            assert value.dtype == array.dtype, f"{case.name}: {name} in {value.dtype}, wanted {array.dtype}"
            what = f"{case.name}: {name}"
            assert_close(value, want, what=what, tolerances=self.tolerances, dtype=case.dtype)

    def test_refuses_shapes_that_do_not_fit(self) -> None:
        """Rows and weights of different widths are refused by a ValueError with both shapes."""
        assert_refuses(
            lambda: self.grouped_matmul(jnp.zeros((4, 8)), jnp.zeros((2, 7, 3)), jnp.zeros(2, jnp.int32)),
            naming=("(4, 8)", "(2, 7, 3)"),
            what="rows of width 8 against weights for width 7",
        )


def _wanted(
    case: GroupedMatmulCase, rows: jax.Array, weights: jax.Array, d_out: jax.Array
) -> tuple[Float64, Float64, Float64]:
    x, w, dy = map(float64, (rows, weights, d_out))
    y, dx, dw = np.zeros((len(x), case.out_dim)), np.zeros_like(x), np.zeros_like(w)
    begin = 0
    for group, size in enumerate(case.sizes):
        own = slice(begin, begin + size)
        y[own], dx[own], dw[group] = x[own] @ w[group], dy[own] @ w[group].T, x[own].T @ dy[own]
        begin += size
    return y, dx, dw
