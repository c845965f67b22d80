"""The tests that every backend of attention passes, as a class to inherit.

    class TestMine(AttentionSuite):
        attention = staticmethod(my_package.attention)

pytest collects it and runs each test once a case. Without pytest, call the methods: ``TestMine().test_output(case)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import ClassVar, Protocol

import jax
import numpy as np

from ._attention_cases import ATTENTION_CASES, AttentionCase, attention_case
from ._attention_oracle import attention_oracle
from ._comparison import Metafunc, assert_close, assert_refuses, normal, parametrize_cases


class Attention(Protocol):
    """The signature of an attention backend; `ax_kernels.attention.base` says what it means."""

    def __call__(
        self,
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
    ) -> jax.Array: ...


class AttentionSuite:
    """Inherit it, set `attention`, and narrow the rest to what the backend can do."""

    attention: ClassVar[Attention]
    """The backend under test, wrapped in ``staticmethod``."""

    cases: ClassVar[tuple[AttentionCase, ...]] = ATTENTION_CASES
    unsupported: ClassVar[frozenset[str]] = frozenset()
    """Options that the backend lacks; cases that need one must raise ValueError naming it."""

    tolerances: ClassVar[Mapping[str, float]] = MappingProxyType({"float32": 2e-6, "bfloat16": 2e-2})
    """By dtype, relative to the largest value wanted (or to 1); gradients get four times as much."""

    def pytest_generate_tests(self, metafunc: Metafunc) -> None:
        """Run each test that takes a case once for every one of `cases`."""
        parametrize_cases(metafunc, self.cases)

    def test_output(self, case: AttentionCase) -> None:
        """The output is that of the float64 oracle, in the query's dtype."""
        arrays, options = case.arrays(), case.options()
        if self._refuses(case):
            return
        got = jax.jit(lambda *arrays: self.attention(*arrays, **options))(*arrays)
        assert got.dtype == arrays[0].dtype, f"{case.name}: output in {got.dtype}, wanted the query's {arrays[0].dtype}"
        wanted = attention_oracle(*arrays, arrays[0], options).output
        assert_close(got, wanted, what=f"{case.name}: output", tolerances=self.tolerances, dtype=case.dtype)

    def test_gradients(self, case: AttentionCase) -> None:
        """The gradients are those of the oracle, also when the call is rematerialised."""
        arrays, options = case.arrays(), case.options()
        if self._refuses(case):
            return
        d_out = normal(np.random.default_rng(1), arrays[0].shape, case.dtype)

        @jax.jit
        def gradients(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            call = jax.checkpoint(lambda *arrays: self.attention(*arrays, **options))
            pullback = jax.vjp(call, *arrays)[1]
            return tuple(pullback(d_out))

        wanted = attention_oracle(*arrays, d_out, options)[1:]
        tolerances = {dtype: 4 * tolerance for dtype, tolerance in self.tolerances.items()}
        for name, array, got, want in zip(("query", "key", "value"), arrays, gradients(*arrays), wanted, strict=True):
            assert got.dtype == array.dtype, f"{case.name}: {name} gradient in {got.dtype}, wanted {array.dtype}"
            what = f"{case.name}: {name} gradient"
            assert_close(got, want, what=what, tolerances=tolerances, dtype=case.dtype)

    def test_same_without_jit(self) -> None:
        """Eager and jitted calls give the same, to rounding."""
        case = attention_case("length_prime")
        arrays, options = case.arrays(), case.options()
        got = self.attention(*arrays, **options)
        wanted = attention_oracle(*arrays, arrays[0], options).output
        assert_close(got, wanted, what="eager output", tolerances=self.tolerances, dtype=case.dtype)

    def test_refuses_heads_that_do_not_divide(self) -> None:
        """Query heads that are no multiple of key heads are refused by a ValueError with both counts."""
        query, key = jax.numpy.zeros((1, 8, 5, 16)), jax.numpy.zeros((1, 8, 2, 16))
        assert_refuses(
            lambda: self.attention(query, key, key, scale=1.0, causal=True),
            naming=("5", "2"),
            what="5 query heads over 2 key heads",
        )

    def _refuses(self, case: AttentionCase) -> bool:
        """Whether the case needs what the backend lacks; then it must say so."""
        needed = {name for name, value in case.options().items() if name in self.unsupported and value is not None}
        if needed:
            call = partial(self.attention, *case.arrays(), **case.options())
            assert_refuses(
                call, naming=sorted(needed)[:1], what=f"{case.name} ({', '.join(sorted(needed))} unsupported)"
            )
        return bool(needed)
