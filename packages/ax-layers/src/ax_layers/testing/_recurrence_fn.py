"""The conformance kits of ``StateSpaceFn`` and ``DeltaRuleFn``: against the recurrence, row by row, with its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ax_layers.protocols import DeltaRuleFn, StateSpaceFn

Inputs: TypeAlias = dict[str, jax.Array]
Results: TypeAlias = tuple[jax.Array, jax.Array]
Run: TypeAlias = Callable[[Inputs, jax.Array | None], Results]


def check_state_space_fn(fn: StateSpaceFn, /, *, length: int = 11, gradients: bool = True) -> None:
    """Put ``fn`` through the contract: outputs, last states, segments, types, and the gradients for all it is given."""

    def run(x: Inputs, segments: jax.Array | None) -> Results:
        arrays = (x["query"], x["key"], x["value"], x["log_decay"])
        return fn(*arrays, state=x.get("state"), segments=segments)

    _check(run, delta=False, length=length, gradients=gradients)


def check_delta_rule_fn(fn: DeltaRuleFn, /, *, length: int = 11, gradients: bool = True) -> None:
    """Put ``fn`` through the contract: outputs, last states, segments, types, and the gradients for all it is given."""

    def run(x: Inputs, segments: jax.Array | None) -> Results:
        arrays = (x["query"], x["key"], x["value"], x["log_decay"], x["beta"])
        return fn(*arrays, state=x.get("state"), segments=segments)

    _check(run, delta=True, length=length, gradients=gradients)


def _check(run: Run, *, delta: bool, length: int, gradients: bool) -> None:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape), jnp.float32)

    key = normal(2, length, 2, 3)
    inputs = {
        "query": normal(2, length, 2, 3),
        "key": key / jnp.linalg.norm(key, axis=-1, keepdims=True),
        "value": normal(2, length, 4, 5),
        "log_decay": -jnp.exp(normal(2, length, 4)),
        "state": normal(2, 4, 3, 5),
    }
    if delta:
        inputs["beta"] = jax.nn.sigmoid(normal(2, length, 4))
    bounds = np.sort(rng.integers(0, length, (2, 3)))  # a segment may be empty, and a number come twice
    packed = jnp.asarray((np.arange(length)[None, None] >= bounds[..., None]).sum(axis=1) % 3, jnp.int32)
    cotangents = normal(2, length, 4, 5), normal(2, 4, 3, 5)
    fresh = {name: x for name, x in inputs.items() if name != "state"}
    for case, given, segments in (("a state, segments", inputs, packed), ("neither", fresh, None)):

        def both(fn: Run, given: Inputs = given, segments: jax.Array | None = segments) -> tuple[Results, Inputs]:
            def vjp(x: Inputs) -> tuple[Results, Inputs]:
                results, back = jax.vjp(lambda x: fn(x, segments), x)
                return results, back(cotangents)[0] if gradients else {}

            out: tuple[Results, Inputs] = jax.jit(vjp)(given)
            return out

        (got, got_grads), (wanted, wanted_grads) = both(run), both(_by_rows)
        for name, a, b in zip(("output", "state"), got, wanted, strict=True):
            assert a.shape == b.shape, f"{case}: the {name} has shape {a.shape}, not {b.shape}"
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=f"{case}: {name}")
        for name, grad in got_grads.items():
            np.testing.assert_allclose(
                grad, wanted_grads[name], rtol=1e-4, atol=1e-4, err_msg=f"{case}: gradient for {name}"
            )

    wide = ("log_decay", "beta", "state")
    narrow = {name: x if name in wide else x.astype(jnp.bfloat16) for name, x in inputs.items()}
    again = {name: x.astype(jnp.float32) for name, x in narrow.items()}
    got, wanted = jax.jit(run)(narrow, packed), _by_rows(again, packed)
    for name, a, b, dtype in zip(("output", "state"), got, wanted, (jnp.bfloat16, jnp.float32), strict=True):
        assert a.dtype == dtype, f"bfloat16: the {name} has type {a.dtype}, not {dtype.dtype.name}"
        np.testing.assert_allclose(a.astype(jnp.float32), b, rtol=5e-2, atol=5e-2, err_msg=f"bfloat16: {name}")


def _by_rows(x: Inputs, segments: jax.Array | None) -> Results:
    """The recurrence as it is written: the delta rule's where there is a "beta"."""
    num_batch, length, num_heads, head_dim = x["value"].shape
    num_groups, state_dim = x["key"].shape[2:]
    if segments is None:
        segments = jnp.zeros((num_batch, length), jnp.int32)
    starts = jnp.pad(segments[:, 1:] != segments[:, :-1], [(0, 0), (1, 0)])

    def row(state: jax.Array, at: Inputs) -> Results:
        query, key = (jnp.repeat(at[name], num_heads // num_groups, axis=1) for name in ("query", "key"))
        state = jnp.where(at["starts"][:, None, None, None], 0.0, state) * jnp.exp(at["log_decay"])[..., None, None]
        added = at["value"]
        if "beta" in at:
            added = at["beta"][..., None] * (added - jnp.einsum("bns,bnsh->bnh", key, state))
        state = state + key[..., :, None] * added[..., None, :]
        return state, jnp.einsum("bns,bnsh->bnh", query, state)

    first = x["state"] if "state" in x else jnp.zeros((num_batch, num_heads, state_dim, head_dim), jnp.float32)
    rows = {name: jnp.moveaxis(a, 1, 0) for name, a in x.items() if name != "state"}
    state, out = jax.lax.scan(row, first, {**rows, "starts": starts.swapaxes(0, 1)})
    return jnp.moveaxis(out, 0, 1), state
