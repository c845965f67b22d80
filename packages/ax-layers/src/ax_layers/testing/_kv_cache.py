"""The conformance kit of ``KVCache``: against a dict from positions to rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ax_layers.protocols import KVCache, State


def check_kv_cache(cache: KVCache[State], /, *, keeps: int | None = None, error: float = 0.0) -> None:
    """Put ``cache`` through the contract.

    A prompt padded on the right, one token at a time, and a piece in which one sequence only pads; ``keeps`` is how many of
    the latest positions the cache promises to remember, None for all; ``error`` is how inexact it may be, as a share of a
    head's largest element.
    """
    batch_size, max_length, num_kv_heads, head_dim = 3, 16, 2, 4
    state = cache.init(
        batch_size=batch_size, max_length=max_length, num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=jnp.float32
    )
    for leaf in jax.tree.leaves(state):
        assert isinstance(leaf, jax.Array), f"the state of a cache is a pytree of jax arrays, got {type(leaf)}"
    pieces = [
        [[0, 1, 2, 3, -1], [0, 1, -1, -1, -1], [0, 1, 2, 3, 4]],
        [[4], [2], [5]],
        [[5], [-1], [6]],
        [[6, 7], [3, -1], [-1, -1]],
    ]
    rng = np.random.default_rng(0)
    expected: list[dict[int, tuple[np.ndarray, np.ndarray]]] = [{} for _ in range(batch_size)]
    update = jax.jit(cache.update)
    for piece in pieces:
        positions = np.asarray(piece, np.int32)
        key, value = (
            rng.standard_normal((*positions.shape, num_kv_heads, head_dim)).astype(np.float32) for _ in range(2)
        )
        before = jax.tree.map(lambda x: (x.shape, x.dtype), state)
        state, keys, values, key_positions = update(state, jnp.asarray(key), jnp.asarray(value), jnp.asarray(positions))
        after = jax.tree.map(lambda x: (x.shape, x.dtype), state)
        assert before == after, f"the state changed its form, so it can't be scanned: {before} became {after}"
        for b, t in np.ndindex(positions.shape):
            if positions[b, t] >= 0:
                expected[b][int(positions[b, t])] = key[b, t], value[b, t]
        _check_rows(expected, np.asarray(keys), np.asarray(values), np.asarray(key_positions), keeps, error)


def _check_rows(
    expected: list[dict[int, tuple[np.ndarray, np.ndarray]]],
    keys: np.ndarray,
    values: np.ndarray,
    key_positions: np.ndarray,
    keeps: int | None,
    error: float,
) -> None:
    for b, rows in enumerate(expected):
        found = {int(p): s for s, p in enumerate(key_positions[b]) if p >= 0}
        filled = int((key_positions[b] >= 0).sum())
        assert len(found) == filled, f"sequence {b}: a position is cached twice: {key_positions[b]}"
        assert set(found) <= set(rows), f"sequence {b}: positions {sorted(set(found) - set(rows))} were never written"
        oldest = max(rows, default=0) - (keeps if keeps is not None else len(rows) + max(rows, default=0)) + 1
        lost = sorted(p for p in rows if p >= oldest and p not in found)
        assert not lost, f"sequence {b}: positions {lost} are lost; cached are {sorted(found)}"
        for p, s in found.items():
            for what, got, wanted in (("key", keys[b, s], rows[p][0]), ("value", values[b, s], rows[p][1])):
                shares = np.abs(got - wanted) / np.abs(wanted).max(axis=-1, keepdims=True)
                assert shares.max() <= error, f"sequence {b}: the {what} at position {p} is {got}, written was {wanted}"
