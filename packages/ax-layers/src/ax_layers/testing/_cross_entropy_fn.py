"""The conformance kit of ``CrossEntropyFn``: against its definition and its gradients in numpy's float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ax_layers.protocols import CrossEntropyFn


def check_cross_entropy_fn(
    fn: CrossEntropyFn, /, *, num_rows: int = 13, dim: int = 16, vocab_size: int = 37, gradients: bool = True
) -> None:
    """Put ``fn`` through the contract: values, types, and gradients of both results for ``hidden`` and ``weight``."""
    rng = np.random.default_rng(0)
    hidden_MD = rng.standard_normal((num_rows, dim))
    weight_VD = rng.standard_normal((vocab_size, dim))
    targets_M = rng.integers(0, vocab_size, num_rows).astype(np.int32)
    cotangents = rng.standard_normal(num_rows), rng.standard_normal(num_rows)
    for cap in (None, 2.5):
        for dtype in ("float32", "bfloat16"):
            case = f"cross-entropy, logit_cap={cap}, {dtype}"

            def call(hidden: jax.Array, weight: jax.Array, cap: float | None = cap) -> tuple[jax.Array, jax.Array]:
                return fn(hidden, weight, jnp.asarray(targets_M), logit_cap=cap)

            hidden, weight = jnp.asarray(hidden_MD, dtype), jnp.asarray(weight_VD, dtype)
            wide = np.asarray(hidden.astype(jnp.float32)), np.asarray(weight.astype(jnp.float32))
            results = jax.jit(call)(hidden, weight)
            wanted, wanted_grads = _reference(wide[0], wide[1], targets_M, cap, cotangents)
            tolerance = 2e-5 if dtype == "float32" else 5e-2
            for name, got, want in zip(("loss", "log_z"), results, wanted, strict=True):
                assert got.shape == (num_rows,), f"{case}: {name} has shape {got.shape}, not {(num_rows,)}"
                assert got.dtype == jnp.float32, f"{case}: {name} has type {got.dtype}, not float32"
                np.testing.assert_allclose(got, want, atol=tolerance, rtol=tolerance, err_msg=f"{case}: {name}")
            if gradients and dtype == "float32":
                given = tuple(jnp.asarray(x, jnp.float32) for x in cotangents)
                grads = jax.jit(lambda h, w, call=call, given=given: jax.vjp(call, h, w)[1](given))(hidden, weight)
                for name, got, want in zip(("hidden", "weight"), grads, wanted_grads, strict=True):
                    np.testing.assert_allclose(got, want, atol=1e-4, rtol=1e-4, err_msg=f"{case}: gradient for {name}")


def _reference(
    hidden: np.ndarray,
    weight: np.ndarray,
    targets: np.ndarray,
    cap: float | None,
    cotangents: tuple[np.ndarray, np.ndarray],
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(loss, log_z) and the gradients of their products with the cotangents, by the formulas."""
    hidden, weight = hidden.astype(np.float64), weight.astype(np.float64)
    raw = hidden @ weight.T
    logits = raw if cap is None else cap * np.tanh(raw / cap)
    log_z = np.log(np.exp(logits).sum(axis=-1))
    rows = np.arange(len(targets))
    loss = log_z - logits[rows, targets]
    to_logits = np.exp(logits - log_z[:, None]) * (cotangents[0] + cotangents[1])[:, None]
    to_logits[rows, targets] -= cotangents[0]
    if cap is not None:
        to_logits *= 1 - (logits / cap) ** 2
    return (loss, log_z), (to_logits @ weight, to_logits.T @ hidden)
