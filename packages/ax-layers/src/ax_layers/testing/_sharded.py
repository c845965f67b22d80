"""The check that a layer gives on eight devices what it gives on one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from ax_config import Buildable
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ax_layers._functional import functional
from ax_layers._module import Module
from ax_layers.protocols import ArrayTree, Axes

P = ParamSpec("P")
R = TypeVar("R")

# Logical name, then the mesh axis that it is split over: the usual ones, so that every kind of split is met.
RULES = {
    "batch": "rows",
    "embed": "rows",
    "expert": "columns",
    "vocab": "columns",
    "heads": "columns",
    "kv_heads": "columns",
    "mlp": "columns",
}


class Grid:
    """Rows by columns of devices; fits ``Sharder``. Dims that a split doesn't divide stay whole."""

    def __init__(self, num_rows: int, num_columns: int, /) -> None:
        auto = (AxisType.Auto, AxisType.Auto)
        self._mesh = jax.make_mesh((num_rows, num_columns), ("rows", "columns"), axis_types=auto)

    def sharding(self, axes: Axes, shape: Sequence[int], /) -> NamedSharding:
        """Where an array goes: of two dims for one mesh axis, the first gets it."""
        return NamedSharding(self._mesh, self._spec(axes, self._splits(dict(zip(axes, shape, strict=True)))))

    def constrain(self, x: jax.Array, axes: Axes, /) -> jax.Array:
        """See ``Sharder``."""
        constrained: jax.Array = jax.lax.with_sharding_constraint(x, self.sharding(axes, x.shape))
        return constrained

    def shard_map(
        self, fn: Callable[P, R], /, *, in_axes: Sequence[Axes], out_axes: Axes | Sequence[Axes]
    ) -> Callable[P, R]:
        """See ``Sharder``; a name is split in one way throughout the call."""

        def call(*args: P.args, **_: P.kwargs) -> R:
            sizes: dict[str | None, int] = {}
            for axes, x in zip(in_axes, cast("tuple[jax.Array, ...]", args), strict=True):
                for name, size in zip(axes, x.shape, strict=True):
                    sizes[name] = math.gcd(sizes.get(name, 0), size)
            splits = self._splits(sizes)
            single = all(name is None or isinstance(name, str) for name in out_axes)
            out = (
                self._spec(cast("Axes", out_axes), splits)
                if single
                else tuple(self._spec(axes, splits) for axes in cast("Sequence[Axes]", out_axes))
            )
            ins = tuple(self._spec(axes, splits) for axes in in_axes)
            run: Callable[..., R] = jax.shard_map(fn, mesh=self._mesh, in_specs=ins, out_specs=out, check_vma=False)
            return run(*args)

        return call

    def _splits(self, sizes: Mapping[str | None, int]) -> dict[str, str]:
        splits: dict[str, str] = {}
        for name, size in sizes.items():
            if name is None or name not in RULES:
                continue
            axis = RULES[name]
            if axis not in splits.values() and size % self._mesh.shape[axis] == 0:
                splits[name] = axis
        return splits

    def _spec(self, axes: Axes, splits: Mapping[str, str]) -> PartitionSpec:
        return PartitionSpec(*(splits.get(name or "") for name in axes))


def check_sharded(layer: Buildable[Module] | Module, /, *inputs: jax.Array, tolerance: float = 1e-5) -> None:
    """Check that on two by four devices a layer gives the results, collections and gradients that it gives on one.

    Batches and models' widths are split over the rows; heads, experts, vocabularies and inner widths over the columns. The first dim of each input is the batch. Needs eight devices; for CPUs, set
    ``XLA_FLAGS=--xla_force_host_platform_device_count=8`` before JAX starts.
    """
    assert jax.device_count() >= 8, f"check_sharded needs 8 devices, there are {jax.device_count()}"
    module = layer if isinstance(layer, Module) else layer.build()
    params = jax.jit(module.init)(jax.random.key(0))
    rng = np.random.default_rng(15_485_863)  # not a seed that the inputs were made with

    def run(params: ArrayTree, inputs: tuple[jax.Array, ...], grid: Grid | None) -> object:
        pure = functional(cast("Callable[..., object]", module), sharder=grid)
        out, collected = jax.jit(lambda p, x: pure(p, jax.random.key(1), *x))(params, inputs)
        cotangents = [jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype) for leaf in jax.tree.leaves(out)]

        def scalar(params: ArrayTree) -> jax.Array:
            leaves = jax.tree.leaves(pure(params, jax.random.key(1), *inputs)[0])
            return jnp.stack([(leaf * c).sum() for leaf, c in zip(leaves, cotangents, strict=True)]).sum()

        return out, collected, jax.jit(jax.grad(scalar))(params)

    state = rng.bit_generator.state
    wanted = run(params, inputs, None)
    grid = Grid(2, 4)
    placed = jax.tree.map(
        lambda spec, x: jax.device_put(x, grid.sharding(spec.axes, spec.shape)), module.specs(), params
    )
    batches = tuple(jax.device_put(x, grid.sharding(("batch", *(None,) * (x.ndim - 1)), x.shape)) for x in inputs)
    rng.bit_generator.state = state
    got = run(placed, batches, grid)
    for (path, a), (_, b) in zip(*map(jax.tree_util.tree_leaves_with_path, (got, wanted)), strict=True):
        where = jax.tree_util.keystr(path, simple=True, separator="/")
        message = f"eight devices and one differ: at {where}"
        left, right = np.asarray(a, np.float32), np.asarray(b, np.float32)
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance, err_msg=message)
