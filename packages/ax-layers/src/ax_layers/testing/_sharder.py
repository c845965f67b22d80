"""The conformance kit of ``Sharder``: whatever it does to the layout, the values are the same."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ax_layers.protocols import Sharder


def check_sharder(
    sharder: Sharder, /, *, axes: Sequence[str | None] = ("batch", "seq", "embed"), shape: Sequence[int] = (8, 16, 32)
) -> None:
    """Put ``sharder`` through the contract on an array of ``shape`` whose dims are called ``axes``."""
    x = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape) / 100
    for names in (tuple(axes), (None,) * len(axes)):
        same = jax.jit(lambda x, names=names: sharder.constrain(x, names))(x)
        assert same.shape == x.shape, f"constrain made shape {same.shape} of {x.shape}"
        assert same.dtype == x.dtype, f"constrain made type {same.dtype} of {x.dtype}"
        np.testing.assert_array_equal(same, x, err_msg=f"constrain with axes {names} changed values")
        grad = jax.jit(jax.grad(lambda x, names=names: (sharder.constrain(x, names) ** 2).sum()))(x)
        np.testing.assert_allclose(grad, 2 * x, err_msg=f"the gradient through constrain with axes {names}")

    def scaled(x: jax.Array, y: jax.Array) -> jax.Array:
        return x * y + 1

    names = tuple(axes)
    by_shards = sharder.shard_map(scaled, in_axes=(names, names), out_axes=names)
    np.testing.assert_allclose(
        jax.jit(by_shards)(x, x), x * x + 1, rtol=1e-6, err_msg="shard_map of an elementwise function"
    )
    grad = jax.jit(jax.grad(lambda x: by_shards(x, x).sum()))(x)
    np.testing.assert_allclose(grad, 2 * x, rtol=1e-6, err_msg="the gradient through shard_map")

    split = sharder.split([names], [shape])

    def counted(x: jax.Array) -> jax.Array:
        for name, size, whole in zip(names, x.shape, shape, strict=True):
            parts = jax.lax.psum(1, split.get(name or "", ()))
            assert size * parts == whole, f"split says {name!r} has {parts} parts, shard_map gives {size} of {whole}"
        return x * 2

    doubled = sharder.shard_map(counted, in_axes=[names], out_axes=names)
    np.testing.assert_array_equal(jax.jit(doubled)(x), 2 * x, err_msg="shard_map of an array that split describes")

    alone = [(name,) for name in names if name is not None]
    sizes = [(size,) for name, size in zip(names, shape, strict=True) if name is not None]
    each = {
        name: axes
        for dim, size in zip(alone, sizes, strict=True)
        for name, axes in sharder.split([dim], [size]).items()
    }
    shared = [name for (name,) in alone[1:]]
    together = sharder.split(alone, sizes, sharing=shared)
    assert together == each, (
        f"alone, the names are split {each}; with {shared} sharing, they are split {dict(together)}"
    )

    first = names[0]
    placed = (None, *names[1:])

    def half_by_hand(x: jax.Array) -> jax.Array:
        total: jax.Array = jax.lax.psum(x.sum(axis=0), split.get(first or "", ()))
        return sharder.constrain(jnp.tanh(x), placed) + total[None]

    by_first = sharder.shard_map(half_by_hand, in_axes=[names], out_axes=names, over=[n for n in (first,) if n])
    np.testing.assert_allclose(
        jax.jit(by_first)(x),
        jnp.tanh(x) + x.sum(axis=0)[None],
        rtol=1e-5,
        err_msg="shard_map over the first name alone",
    )
