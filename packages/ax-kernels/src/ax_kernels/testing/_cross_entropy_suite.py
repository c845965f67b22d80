"""The tests that every backend of cross-entropy passes, as a class to inherit.

class TestMine(CrossEntropySuite):
    cross_entropy = staticmethod(my_package.cross_entropy)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ._comparison import Metafunc, assert_close, assert_refuses, normal, parametrize_cases
from ._cross_entropy_cases import CROSS_ENTROPY_CASES, CrossEntropyCase
from ._cross_entropy_oracle import cross_entropy_oracle


class CrossEntropy(Protocol):
    """The signature of a cross-entropy backend; `ax_kernels.cross_entropy.base` says what it means."""

    def __call__(
        self, hidden: jax.Array, weight: jax.Array, targets: jax.Array, /, *, logit_cap: float | None = None
    ) -> tuple[jax.Array, jax.Array]: ...


class CrossEntropySuite:
    """Inherit it and set `cross_entropy`."""

    cross_entropy: ClassVar[CrossEntropy]
    """The backend under test, wrapped in ``staticmethod``."""

    cases: ClassVar[tuple[CrossEntropyCase, ...]] = CROSS_ENTROPY_CASES
    tolerances: ClassVar[Mapping[str, float]] = MappingProxyType({"float32": 5e-6, "bfloat16": 2e-2})
    """By dtype, relative to the largest value wanted (or to 1)."""

    def pytest_generate_tests(self, metafunc: Metafunc) -> None:
        """Run each test that takes a case once for every one of `cases`."""
        parametrize_cases(metafunc, self.cases)

    def test_values(self, case: CrossEntropyCase) -> None:
        """Loss and log-normaliser are those of the float64 oracle, in float32 whatever the inputs' dtype."""
        arrays = case.arrays()
        rows = jnp.zeros(case.num_rows)
        got = jax.jit(lambda *arrays: self.cross_entropy(*arrays, logit_cap=case.logit_cap))(*arrays)
        wanted = cross_entropy_oracle(*arrays, rows, rows, logit_cap=case.logit_cap)
        for name, value, want in zip(("loss", "log_z"), got, wanted[:2], strict=True):
            assert value.dtype == jnp.float32, f"{case.name}: {name} in {value.dtype}, wanted float32"
            # Products of bfloat16 are exact in float32, so the inputs' dtype loosens nothing here.
            what = f"{case.name}: {name}"
            assert_close(value, want, what=what, tolerances=self.tolerances, dtype=jnp.float32)

    def test_gradients(self, case: CrossEntropyCase) -> None:
        """Gradients through both results are those of the oracle, also when the call is rematerialised."""
        hidden, weight, targets = case.arrays()
        rng = np.random.default_rng(1)
        d_rows = normal(rng, (case.num_rows,), jnp.float32), normal(rng, (case.num_rows,), jnp.float32)

        @jax.jit
        def gradients(hidden: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
            call = jax.checkpoint(lambda h, w: self.cross_entropy(h, w, targets, logit_cap=case.logit_cap))
            d_hidden, d_weight = jax.vjp(call, hidden, weight)[1](d_rows)
            return d_hidden, d_weight

        wanted = cross_entropy_oracle(hidden, weight, targets, *d_rows, logit_cap=case.logit_cap)[2:]
        # One float32 logit near x is off by about 1e-7 x, and so is the probability it gives, relatively.
        tolerances = {dtype: bound * max(1.0, case.spread / 10) for dtype, bound in self.tolerances.items()}
        for name, array, got, want in zip(
            ("hidden", "weight"), (hidden, weight), gradients(hidden, weight), wanted, strict=True
        ):
            assert got.dtype == array.dtype, f"{case.name}: {name} gradient in {got.dtype}, wanted {array.dtype}"
            what = f"{case.name}: {name} gradient"
            assert_close(got, want, what=what, tolerances=tolerances, dtype=case.dtype)

    def test_refuses_shapes_that_do_not_fit(self) -> None:
        """Hidden and weight of different widths are refused by a ValueError with both shapes."""
        assert_refuses(
            lambda: self.cross_entropy(jnp.zeros((4, 8)), jnp.zeros((10, 7)), jnp.zeros(4, jnp.int32)),
            naming=("(4, 8)", "(10, 7)"),
            what="hidden of width 8 against a weight of width 7",
        )
