"""Checks of layers: that one keeps the promises that every transform and every parent relies on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from ax_config import Buildable

from ax_layers._context import Collected
from ax_layers._functional import functional
from ax_layers._module import Module
from ax_layers.protocols import ArrayTree, SequenceLayer

Tree: TypeAlias = object
Call: TypeAlias = Callable[[ArrayTree, tuple[object, ...], jax.Array], tuple[object, Collected]]


def check_layer(
    layer: Buildable[Module] | Module, /, *inputs: object, tolerance: float = 1e-5, **options: object
) -> None:
    """Put a module, or the config of one, through what holds for every layer.

    Its specs match its parameters; jit, scan and remat change neither results nor what it collects; gradients for all
    parameters and all float inputs are finite and agree with finite differences. It is called as
    ``layer(*inputs, **options)``; use small inputs, and float32.
    """
    module = layer if isinstance(layer, Module) else layer.build()
    pure = functional(cast("Callable[..., object]", module))

    def call(params: ArrayTree, inputs: tuple[object, ...], key: jax.Array) -> tuple[object, Collected]:
        return pure(params, key, *inputs, **options)

    init, jitted, keys = jax.jit(module.init), jax.jit(call), jax.random.split(jax.random.key(0), 2)
    params = [init(key) for key in keys]
    _check_specs(module, params[0])
    results = [jitted(p, inputs, key) for p, key in zip(params, keys, strict=True)]
    _assert_close(call(params[0], inputs, keys[0]), results[0], tolerance, "eager and jit differ")

    def body(_: None, each: tuple[ArrayTree, jax.Array]) -> tuple[None, tuple[object, Collected]]:
        return None, call(each[0], inputs, each[1])

    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *params)
    _, scanned = jax.lax.scan(body, None, (stacked, keys))
    singly = jax.tree.map(lambda *xs: jnp.stack(xs), *results)
    _assert_close(scanned, singly, tolerance, "scanned over parameters and one by one differ")
    _check_gradients(jitted, params[0], inputs, keys[0], tolerance)


def _check_specs(module: Module, params: ArrayTree) -> None:
    specs, arrays = dict(_leaves(module.specs())), dict(_leaves(params))
    assert specs.keys() == arrays.keys(), f"specs() names {sorted(specs)}, init() makes {sorted(arrays)}"
    for path, leaf in arrays.items():
        spec, array = cast("jax.ShapeDtypeStruct", specs[path]), cast("jax.Array", leaf)
        assert array.shape == spec.shape, f"{path}: the spec says shape {spec.shape}, init made {array.shape}"
        assert array.dtype == spec.dtype, f"{path}: the spec says type {spec.dtype}, init made {array.dtype}"


def _check_gradients(
    call: Call, params: ArrayTree, inputs: tuple[object, ...], key: jax.Array, tolerance: float
) -> None:
    leaves, structure = jax.tree.flatten((params, inputs))
    floats = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)]

    def outputs(point: list[jax.Array]) -> list[jax.Array]:
        moved = list(leaves)
        for i, x in zip(floats, point, strict=True):
            moved[i] = x
        moved_params, moved_inputs = jax.tree.unflatten(structure, moved)
        results = jax.tree.leaves(call(moved_params, moved_inputs, key)[0])
        return [leaf for leaf in results if jnp.issubdtype(leaf.dtype, jnp.floating)]

    paths = [path for path, _ in (*_leaves(params), *_leaves(inputs))]
    point = [leaves[i] for i in floats]
    rng = np.random.default_rng(86_028_121)  # not a seed that the inputs were made with
    cotangents = [rng.standard_normal(out.shape) for out in outputs(point)]
    given = [jnp.asarray(c, jnp.float32) for c in cotangents]

    def gradients(outputs: Callable[[list[jax.Array]], list[jax.Array]]) -> list[jax.Array]:
        def scalar(point: list[jax.Array]) -> jax.Array:
            parts = [(out.astype(jnp.float32) * c).sum() for out, c in zip(outputs(point), given, strict=True)]
            return sum(parts[1:], parts[0])

        slopes: list[jax.Array] = jax.jit(jax.grad(scalar))(point)
        return slopes

    plain = gradients(outputs)
    _assert_close(gradients(jax.checkpoint(outputs)), plain, tolerance, "gradients with and without remat differ")

    for i, grad in enumerate(plain):
        path, slope, at = paths[floats[i]], np.asarray(grad, np.float64), np.asarray(point[i], np.float64)
        assert np.isfinite(slope).all(), f"{path}: the gradient isn't finite"
        # Partly random, mostly along the gradient, lest the slope drown in rounding.
        direction = rng.standard_normal(slope.shape)
        direction = 0.5 * direction / np.linalg.norm(direction) + slope / max(float(np.linalg.norm(slope)), 1e-30)
        step = 5e-3 * max(float(np.sqrt(np.mean(at**2))), 0.1) / float(np.linalg.norm(direction))
        values = []
        for moved in (at + step * direction, at - step * direction):
            results = outputs([*point[:i], jnp.asarray(moved, point[i].dtype), *point[i + 1 :]])
            values.append(
                sum(float((np.asarray(r, np.float64) * c).sum()) for r, c in zip(results, cotangents, strict=True))
            )
        wanted, got = (values[0] - values[1]) / (2 * step), float((slope * direction).sum())
        bound = 2e-2 * max(abs(wanted), 1e-2 * float(np.linalg.norm(slope)), 1e-2)
        assert abs(got - wanted) <= bound, f"{path}: the gradient along a direction is {got}, differences say {wanted}"


def check_extend(layer: SequenceLayer, params: ArrayTree, x: jax.Array, /, *, tolerance: float = 1e-5) -> None:
    """Check that a layer fed piece by piece, prompts padded on the right, gives what it gives for whole sequences.

    ``x`` is ``[B, T, D]`` with ``T`` of at least 5.
    """
    num_batch, length, _ = x.shape
    whole, _ = functional(layer)(params, None, x)
    extend = jax.jit(functional(layer.extend))
    cache = layer.init_cache(batch_size=num_batch, max_length=length)
    prompts = 2 + np.arange(num_batch) % (length - 3)
    width = int(prompts.max()) + 1
    steps = np.arange(width)[None]
    positions = np.where(steps < prompts[:, None], steps, -1).astype(np.int32)
    (out, cache), _ = extend(params, None, x[:, :width], cache, positions=jnp.asarray(positions))
    for b, prompt in enumerate(prompts):
        np.testing.assert_allclose(
            out[b, :prompt], whole[b, :prompt], atol=tolerance, rtol=tolerance, err_msg=f"prompt of sequence {b}"
        )
    for step in range(length - int(prompts.max())):
        at = (prompts + step).astype(np.int32)
        rows = np.arange(num_batch)
        (out, cache), _ = extend(params, None, x[rows, at][:, None], cache, positions=jnp.asarray(at[:, None]))
        np.testing.assert_allclose(
            out[:, 0], whole[rows, at], atol=tolerance, rtol=tolerance, err_msg=f"step {step} after the prompts"
        )


def _leaves(tree: Tree) -> list[tuple[str, object]]:
    return [
        (jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _assert_close(got: Tree, wanted: Tree, tolerance: float, message: str) -> None:
    left, right = _leaves(got), _leaves(wanted)
    assert [path for path, _ in left] == [path for path, _ in right], f"{message}: in structure"
    for (path, a), (_, b) in zip(left, right, strict=True):
        first, second = (np.asarray(cast("jax.Array", leaf).astype(jnp.float32)) for leaf in (a, b))
        np.testing.assert_allclose(
            first, second, atol=tolerance, rtol=tolerance, err_msg=f"{message}: at {path or 'it'}"
        )
