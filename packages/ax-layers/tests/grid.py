"""Two rows by four columns of devices, over which arrays are split by the names of their dims."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar, cast

import jax
from ax_layers import SpecTree
from ax_layers.protocols import Axes
from jax.sharding import AxisType, NamedSharding, PartitionSpec

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
    """Fits ``Sharder``. Of two dims for one mesh axis the first gets it; dims that a split doesn't divide stay whole."""

    def __init__(self) -> None:
        auto = (AxisType.Auto, AxisType.Auto)
        self._mesh = jax.make_mesh((2, 4), ("rows", "columns"), axis_types=auto)

    def shardings(self, specs: SpecTree, /) -> object:
        """Where parameters go."""
        return jax.tree.map(lambda spec: self._sharding(spec.axes, spec.shape), specs)

    def _sharding(self, axes: Axes, shape: Sequence[int], /) -> NamedSharding:
        return NamedSharding(self._mesh, self._spec(axes, self._splits(dict(zip(axes, shape, strict=True)))))

    def constrain(self, x: jax.Array, axes: Axes, /) -> jax.Array:
        """See ``Sharder``."""
        spec = self._spec(axes, self._splits(dict(zip(axes, x.shape, strict=True))))
        constrained: jax.Array = jax.lax.with_sharding_constraint(x, NamedSharding(self._current(), spec))
        return constrained

    def shard_map(
        self,
        fn: Callable[P, R],
        /,
        *,
        in_axes: Sequence[Axes],
        out_axes: Axes | Sequence[Axes],
        over: Sequence[str] | None = None,
    ) -> Callable[P, R]:
        """See ``Sharder``; a name is split in one way throughout the call."""

        def call(*args: P.args, **_: P.kwargs) -> R:
            shapes = [x.shape for x in cast("tuple[jax.Array, ...]", args)]
            splits = {name: axis for name, (axis,) in self.split(in_axes, shapes).items()}
            if over is not None:
                splits = {name: axis for name, axis in splits.items() if name in over}
                if not splits:
                    return cast("Callable[..., R]", fn)(*args)
            single = all(name is None or isinstance(name, str) for name in out_axes)
            out = (
                self._spec(cast("Axes", out_axes), splits)
                if single
                else tuple(self._spec(axes, splits) for axes in cast("Sequence[Axes]", out_axes))
            )
            ins = tuple(self._spec(axes, splits) for axes in in_axes)
            run: Callable[..., R] = jax.shard_map(
                fn,
                mesh=self._current(),
                in_specs=ins,
                out_specs=out,
                axis_names=set(self._free() if over is None else splits.values()),
                check_vma=False,
            )
            return run(*args)

        return call

    def split(self, in_axes: Sequence[Axes], shapes: Sequence[Sequence[int]], /) -> dict[str, tuple[str, ...]]:
        """See ``Sharder``."""
        sizes: dict[str | None, int] = {}
        for axes, shape in zip(in_axes, shapes, strict=True):
            for name, size in zip(axes, shape, strict=True):
                sizes[name] = math.gcd(sizes.get(name, 0), size)
        return {name: (axis,) for name, axis in self._splits(sizes).items()}

    def _free(self) -> list[str]:
        taken = jax.sharding.get_abstract_mesh().manual_axes
        return [axis for axis in self._mesh.axis_names if axis not in taken]

    def _current(self) -> jax.sharding.Mesh | jax.sharding.AbstractMesh:
        around = jax.sharding.get_abstract_mesh()
        return around if around.manual_axes else self._mesh

    def _splits(self, sizes: Mapping[str | None, int]) -> dict[str, str]:
        splits: dict[str, str] = {}
        for name, size in sizes.items():
            if name is None or name not in RULES:
                continue
            axis = RULES[name]
            if axis in self._free() and axis not in splits.values() and size % self._mesh.shape[axis] == 0:
                splits[name] = axis
        return splits

    def _spec(self, axes: Axes, splits: Mapping[str, str]) -> PartitionSpec:
        return PartitionSpec(*(splits.get(name or "") for name in axes))
