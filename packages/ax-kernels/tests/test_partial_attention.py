"""Attention to parts of the keys, put together, is attention to all of them: values and gradients, against the oracle."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_kernels.attention import PartialBlocked
from ax_kernels.testing import attention_case, attention_oracle


@pytest.mark.parametrize(
    "name", ["smollm2_135m", "everything", "everything_bfloat16", "disjoint_segments", "ring_cache"]
)
def test_parts_put_together(name: str) -> None:
    case = attention_case(name)
    (query, key, value), options = case.arrays(), case.options()
    part, middle = PartialBlocked(block_q=24, block_k=16), case.key_length // 3
    rows = {"query": (case.batch, case.query_length), "key": (case.batch, case.key_length)}
    numbered: Any = {
        f"{of}_positions": jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.int32), shape) for of, shape in rows.items()
    }
    given: dict[str, Any] = {**options, **{name: x for name, x in numbered.items() if options[name] is None}}  # type: ignore[literal-required]
    d_out = jnp.asarray(np.random.default_rng(1).standard_normal(query.shape), query.dtype)

    def cut(piece: slice) -> tuple[jax.Array, jax.Array, dict[str, Any]]:
        of_keys = {name: x[:, piece] for name, x in given.items() if name.startswith("key") and x is not None}
        return key[:, piece], value[:, piece], {**given, **of_keys}

    @jax.jit
    def run() -> tuple[jax.Array, ...]:
        pieces = [cut(slice(None, middle)), cut(slice(middle, None))]
        (first, first_sum), (second, second_sum) = (part.forward(query, k, v, **of) for k, v, of in pieces)
        together = jnp.logaddexp(first_sum, second_sum)
        shares = (jnp.exp(x - together).swapaxes(1, 2)[..., None] for x in (first_sum, second_sum))
        whole = sum((share * out for share, out in zip(shares, (first, second), strict=True)), jnp.zeros(first.shape))
        softmax = whole.astype(query.dtype), together, d_out
        grads = [part.backward(query, k, v, *softmax, **of) for k, v, of in pieces]
        keys = (jnp.concatenate([grads[0][i], grads[1][i]], axis=1) for i in (1, 2))
        return (whole, grads[0][0] + grads[1][0], *keys)

    tolerance = 2e-2 if case.dtype == "bfloat16" else 2e-5
    for got, wanted in zip(run(), attention_oracle(query, key, value, d_out, options), strict=True):
        assert got.dtype == jnp.float32
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(got, wanted, atol=tolerance * scale)


def test_what_sees_nothing_says_so() -> None:
    query = jnp.ones((1, 5, 2, 4), jnp.float32)
    places = jnp.arange(5, dtype=jnp.int32)[None]
    out, log_sum_exp = PartialBlocked().forward(
        query,
        query,
        query,
        scale=1.0,
        causal=True,
        window=None,
        logit_cap=None,
        query_positions=places,
        key_positions=places + 3,
        query_segments=None,
        key_segments=None,
    )
    assert log_sum_exp.shape == (1, 2, 5)
    np.testing.assert_array_equal(log_sum_exp < -1e30, np.tile(np.arange(5) < 3, (1, 2, 1)))
    assert bool(jnp.isfinite(log_sum_exp).all())
    np.testing.assert_allclose(out[0, :, 0, 0], [0, 0, 0, 1, 1], rtol=1e-6)
