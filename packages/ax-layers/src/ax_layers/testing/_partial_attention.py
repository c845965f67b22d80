"""The conformance kit of ``PartialAttention``: parts of the keys, put together, against a loop in numpy's float64."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ax_layers.protocols import PartialAttention

from ._attention_fn import Array, Options, attention_cases, reference_attention

_CUTS = (0, 5, 11)
"""Where the parts of the keys begin: of several sizes, so that blocks aren't equal."""


def check_partial_attention(
    part: PartialAttention, /, *, length: int = 16, head_dim: int = 8, may_refuse: Collection[str] = ()
) -> None:
    """Put ``part`` through the contract.

    Args:
        part: The implementation.
        length: The number of queries; as many keys, or twice as many where a cache is played.
        head_dim: The head dim.
        may_refuse: The options that ``part`` may lack, such as "window"; it has to raise ValueError naming one of those
            that it was given.
    """
    for seed, (name, heads, options) in enumerate(attention_cases(length, head_dim)):
        rng = np.random.default_rng(seed)
        key_positions = options.get("key_positions")
        key_length = length if key_positions is None else key_positions.shape[1]
        arrays = tuple(
            rng.standard_normal((2, rows, of_heads, head_dim))
            for rows, of_heads in zip((length, key_length, key_length), (heads[0], heads[1], heads[1]), strict=True)
        )
        given = {
            "query_positions": np.tile(np.arange(length, dtype=np.int32), (2, 1)),
            "key_positions": np.tile(np.arange(key_length, dtype=np.int32), (2, 1)),
            **{option: value for option, value in options.items() if value is not None},
        }
        try:
            _check_case(name, part, arrays, given, options)
        except ValueError as refusal:
            if not any(options.get(option) is not None and option in str(refusal) for option in may_refuse):
                raise AssertionError(
                    f"the part refused the case {name!r}, without naming an option it may lack"
                ) from refusal


def _check_case(
    name: str, part: PartialAttention, arrays: tuple[Array, ...], given: dict[str, Any], options: Options
) -> None:
    query, key, value = (jnp.asarray(x, jnp.float32) for x in arrays)
    d_out = np.random.default_rng(101).standard_normal(query.shape)

    def of_part(start: int, stop: int) -> tuple[jax.Array, jax.Array, dict[str, Any]]:
        def cut(option: str, value: object) -> object:
            if not isinstance(value, np.ndarray):
                return value
            return jnp.asarray(value[:, start:stop] if option.startswith("key_") else value)

        defaults = dict.fromkeys(("window", "logit_cap", "query_segments", "key_segments"))
        of_these = {option: cut(option, value) for option, value in {**defaults, **given}.items()}
        return key[:, start:stop], value[:, start:stop], of_these

    ends = [*_CUTS[1:], key.shape[1]]
    parts = [of_part(start, stop) for start, stop in zip(_CUTS, ends, strict=True)]
    halves = jax.jit(lambda: [part.forward(query, k, v, **o) for k, v, o in parts])()
    for out, log_sum_exp in halves:
        shape = (query.shape[0], query.shape[2], query.shape[1])
        assert out.shape == query.shape, f"{name}: a part's output has shape {out.shape}, the query {query.shape}"
        assert log_sum_exp.shape == shape, f"{name}: log-sum-exps are {shape}, got {log_sum_exp.shape}"
        assert out.dtype == log_sum_exp.dtype == jnp.float32, f"{name}: got {out.dtype} and {log_sum_exp.dtype}"
        blind = np.asarray(log_sum_exp) < -1e30
        assert np.isfinite(log_sum_exp).all(), f"{name}: a log-sum-exp isn't finite"
        assert (np.asarray(out).swapaxes(1, 2)[blind] == 0).all(), f"{name}: what sees nothing doesn't give zeros"

    sums = np.stack([np.asarray(log_sum_exp, np.float64) for _, log_sum_exp in halves])
    together = np.logaddexp.reduce(sums)
    shares = np.exp(sums - together).swapaxes(2, 3)[..., None]
    whole = (shares * np.stack([np.asarray(out, np.float64) for out, _ in halves])).sum(axis=0)
    wanted = reference_attention(arrays[0], arrays[1], arrays[2], options)
    np.testing.assert_allclose(whole, wanted, atol=2e-5, rtol=2e-5, err_msg=f"{name}: the parts put together")

    softmax = [jnp.asarray(x, jnp.float32) for x in (whole, together, d_out)]
    grads = jax.jit(lambda: [part.backward(query, k, v, *softmax, **o) for k, v, o in parts])()
    d_query = np.sum([np.asarray(grad[0], np.float64) for grad in grads], axis=0)
    d_key, d_value = (np.concatenate([grad[i] for grad in grads], axis=1) for i in (1, 2))
    for i, (argument, slope) in enumerate(zip(("query", "key", "value"), (d_query, d_key, d_value), strict=True)):
        direction = np.random.default_rng(102).standard_normal(slope.shape) + slope
        moved = []
        for step in (1e-5, -1e-5):
            at = [x + step * direction if j == i else x for j, x in enumerate(arrays)]
            moved.append((reference_attention(at[0], at[1], at[2], options) * d_out).sum())
        np.testing.assert_allclose(
            (slope * direction).sum(),
            (moved[0] - moved[1]) / 2e-5,
            atol=2e-3,
            rtol=2e-3,
            err_msg=f"{name}: the parts' gradients for the {argument}, together",
        )
