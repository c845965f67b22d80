"""Checks of layers: that one keeps the promises that every transform and every parent relies on."""

from __future__ import annotations

import math
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
Pure: TypeAlias = Callable[[ArrayTree, jax.Array], Tree]


def check_layer(
    layer: Buildable[Module] | Module, /, *inputs: object, tolerance: float = 1e-5, **options: object
) -> None:
    """Put a module, or the config of one, through what holds for every layer.

    Its specs match its parameters; jit, scan and remat change neither results nor what it collects; gradients for all
    parameters and all float inputs are finite and agree with finite differences. It is called as
    ``layer(*inputs, **options)``; use small float32 inputs, and no dropout when gradients matter most.
    """
    module = layer if isinstance(layer, Module) else layer.build()
    key = jax.random.key(7)
    params = _check_params(module)

    def call(params: ArrayTree, inputs: tuple[object, ...], key: jax.Array) -> tuple[object, Collected]:
        pure = functional(cast("Callable[..., object]", module))
        return pure(params, key, *inputs, **options)

    eager = call(params, inputs, key)
    _assert_close(jax.jit(call)(params, inputs, key), eager, tolerance, "jit and eager differ")
    _check_scan(module, call, inputs, tolerance)
    _check_gradients(call, params, inputs, key, tolerance)


def _check_params(module: Module) -> ArrayTree:
    key = jax.random.key(3)
    params = module.init(key)
    specs = dict(_leaves(module.specs()))
    arrays = dict(_leaves(params))
    assert specs.keys() == arrays.keys(), f"specs() names {sorted(specs)}, init() makes {sorted(arrays)}"
    for path, array in arrays.items():
        spec = cast("jax.ShapeDtypeStruct", specs[path])
        array = cast("jax.Array", array)
        assert array.shape == spec.shape, f"{path}: the spec says shape {spec.shape}, init made {array.shape}"
        assert array.dtype == spec.dtype, f"{path}: the spec says type {spec.dtype}, init made {array.dtype}"
    _assert_close(jax.jit(module.init)(key), params, 1e-6, "init under jit and eager differ")
    return params


def _check_scan(
    module: Module,
    call: Callable[[ArrayTree, tuple[object, ...], jax.Array], tuple[object, Collected]],
    inputs: tuple[object, ...],
    tolerance: float,
) -> None:
    sets = [module.init(jax.random.key(i)) for i in range(2)]
    keys = jax.random.split(jax.random.key(5), 2)
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *sets)
    _, scanned = jax.lax.scan(lambda _, each: (None, call(each[0], inputs, each[1])), None, (stacked, keys))
    singly = jax.tree.map(lambda *xs: jnp.stack(xs), *[call(p, inputs, k) for p, k in zip(sets, keys, strict=True)])
    _assert_close(scanned, singly, tolerance, "scanned over parameters and one by one differ")


def _check_gradients(
    call: Callable[[ArrayTree, tuple[object, ...], jax.Array], tuple[object, Collected]],
    params: ArrayTree,
    inputs: tuple[object, ...],
    key: jax.Array,
    tolerance: float,
) -> None:
    floats = [i for i, x in enumerate(inputs) if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)]

    def outputs(point: tuple[ArrayTree, list[object]]) -> list[jax.Array]:
        moved = list(inputs)
        for i, x in zip(floats, point[1], strict=True):
            moved[i] = x
        leaves = jax.tree.leaves(call(point[0], tuple(moved), key)[0])
        return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]

    point = (params, [inputs[i] for i in floats])
    rng = np.random.default_rng(0)
    cotangents = [rng.standard_normal(out.shape) for out in outputs(point)]
    given = [jnp.asarray(c, jnp.float32) for c in cotangents]

    def gradients(outputs: Callable[[tuple[ArrayTree, list[object]]], list[jax.Array]]) -> object:
        def scalar(point: tuple[ArrayTree, list[object]]) -> jax.Array:
            parts = [(out.astype(jnp.float32) * c).sum() for out, c in zip(outputs(point), given, strict=True)]
            return sum(parts[1:], parts[0])

        return jax.jit(jax.grad(scalar))(point)

    plain = gradients(outputs)
    _assert_close(gradients(jax.checkpoint(outputs)), plain, tolerance, "gradients with and without remat differ")

    run = jax.jit(outputs)
    paths = [path for path, _ in _leaves(point)]
    leaves, structure = jax.tree.flatten(point)
    for i, (path, grad) in enumerate(zip(paths, jax.tree.leaves(plain), strict=True)):
        slope = np.asarray(grad, np.float64)
        assert np.isfinite(slope).all(), f"{path}: the gradient isn't finite"
        direction = rng.standard_normal(slope.shape)
        direction = direction / np.linalg.norm(direction) + slope / max(float(np.linalg.norm(slope)), 1e-30)
        spread = max(float(np.sqrt(np.mean(np.square(np.asarray(leaves[i], np.float64))))), 0.1)
        step = 2e-2 * spread / float(np.linalg.norm(direction))

        def along(sign: int, i: int = i, change: np.ndarray = step * direction) -> float:
            moved = list(leaves)
            moved[i] = jnp.asarray(np.asarray(leaves[i], np.float64) + sign * change, leaves[i].dtype)
            results = run(jax.tree.unflatten(structure, moved))
            return math.fsum((np.asarray(r, np.float64) * c).sum() for r, c in zip(results, cotangents, strict=True))

        wanted = (along(1) - along(-1)) / (2 * step)
        got = float((slope * direction).sum())
        scale = max(abs(wanted), 1e-2 * float(np.linalg.norm(slope)), 1e-2)
        assert abs(got - wanted) <= 2e-2 * scale, (
            f"{path}: the gradient along a direction is {got}, differences say {wanted}"
        )


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
