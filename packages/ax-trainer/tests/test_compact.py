"""Numbers in fewer bits, against searches in numpy; and rules whose state is kept so."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import Compact
from ax_trainer._compact import rounded
from ax_trainer._eight_bits import decoded, encoded, table

RANDOM = np.random.default_rng(0)


def test_the_tables() -> None:
    signed, unsigned = table(signed=True), table(signed=False)
    for numbers in (signed, unsigned):
        assert numbers.shape == (256,)
        assert (np.diff(numbers) > 0).all()
        assert 0 in numbers
        assert numbers[-1] == 1
    np.testing.assert_array_equal(signed[signed < 0], -signed[(signed > 0) & (signed < 1)][::-1])
    relative = np.diff(signed[-64:]) / signed[-64:-1]
    assert relative.max() < 0.12, "large ones are told to a few per cent of themselves"
    assert unsigned[1] < 1e-6 < unsigned[3], "small ones to seven decades below"


@pytest.mark.parametrize("signed", [True, False])
def test_every_number_goes_to_the_nearest(signed: bool) -> None:
    x = (RANDOM.standard_normal((3, 70)) * 10.0 ** RANDOM.integers(-4, 3, (3, 70))).astype(np.float32)
    x = x if signed else np.abs(x)
    index, largest = jax.jit(lambda x: encoded(x, block=32, signed=signed))(x)
    assert (index.shape, index.dtype, largest.shape) == ((3, 70), jnp.uint8, (3, 3))
    got = np.asarray(decoded(index, largest, block=32, signed=signed))
    for row in range(3):
        for start in (0, 32, 64):
            block = x[row, start : start + 32]
            candidates = table(signed=signed) * np.abs(block).max()
            best = np.abs(candidates[None] - block[:, None]).min(axis=1)
            error = np.abs(got[row, start : start + 32] - block)
            allowed = np.maximum(best, 0 if signed else candidates[1])  # what is above zero stays so
            assert (error <= allowed * (1 + 1e-4) + 1e-30).all()


def test_zeros_stay_and_what_is_above_zero_stays_above() -> None:
    x = jnp.asarray([0.0, 1.0, 1e-12, 0.0])
    got = decoded(*encoded(x, block=4, signed=False), block=4, signed=False)
    np.testing.assert_array_equal(np.asarray(got) > 0, [False, True, True, False])
    nothing = jnp.zeros(8)
    np.testing.assert_array_equal(decoded(*encoded(nothing, block=4, signed=True), block=4, signed=True), nothing)


def test_rounding_at_random_is_right_in_the_mean() -> None:
    x = jnp.full((20_000,), 1 + 1 / 512)  # a quarter of the way from 1 to the next bfloat16, 1 + 1/128
    drawn = rounded(x, jax.random.key(0)).astype(jnp.float32)
    assert set(np.unique(drawn)) == {1.0, 1 + 1 / 128}
    np.testing.assert_allclose(np.asarray(drawn).mean() - 1, 1 / 512, rtol=0.05)
    special = jnp.asarray([jnp.inf, -jnp.inf, jnp.nan, 0.0, -1.0])
    np.testing.assert_array_equal(rounded(special, jax.random.key(1)).astype(jnp.float32), special)


def directions(rule: object, *, steps: int = 20) -> list[np.ndarray]:
    """What a rule makes of the same gradients."""
    optimizer = rule.for_specs(None) if isinstance(rule, Compact) else rule
    random = np.random.default_rng(1)
    params, seen = jnp.zeros((16, 64)), []
    with jax.numpy_dtype_promotion("standard"):  # optax needs it
        state, update = optimizer.init(params), jax.jit(optimizer.update)  # type: ignore[attr-defined]
        for _ in range(steps):
            gradient = random.standard_normal((16, 64)) * np.geomspace(1e-3, 1, 64)
            updates, state = update(jnp.asarray(gradient, jnp.float32), state, params)
            seen.append(np.asarray(updates))
    return seen


@pytest.mark.parametrize(("dtype", "error"), [("bfloat16", 0.01), ("int8", 0.15)])
def test_adam_with_a_packed_state_goes_the_same_way(dtype: str, error: float) -> None:
    adam = config_for(optax.scale_by_adam)(b1=0.9, b2=0.95)
    packed = Compact.Config(rule=adam, dtype=dtype, min_size=16).build()  # type: ignore[arg-type]
    for want, got in zip(directions(adam.build()), directions(packed), strict=True):
        assert np.linalg.norm(got - want) < error * np.linalg.norm(want)


def test_small_arrays_and_counters_stay() -> None:
    rule = Compact.Config(rule=config_for(optax.scale_by_adam)(), dtype="int8", min_size=100, block=64).build()
    state = rule.for_specs(None).init({"large": jnp.zeros((2, 64)), "small": jnp.zeros((3,))})
    kinds = {jax.tree_util.keystr(path): leaf.dtype for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    assert {path for path, dtype in kinds.items() if dtype == jnp.uint8} == {
        ".values.mu['large']",
        ".values.nu['large']",
    }
    assert kinds[".values.mu['small']"] == kinds[".scales.nu['large']"] == jnp.float32
    with pytest.raises(ValueError, match="at least 1 number, got 0"):
        Compact.Config(rule=config_for(optax.scale_by_adam)(), block=0).build()
