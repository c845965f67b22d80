"""Devices in a grid, two rows by four columns unless told otherwise, over which arrays are split by the names of their dims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar, cast

import jax
from ax_layers import SpecTree
from ax_layers.protocols import Axes
from jax.sharding import AxisType, NamedSharding, PartitionSpec

P = ParamSpec("P")
R = TypeVar("R")

# Logical name, then the mesh axes that it is split over: the usual ones, so that every kind of split is met.
RULES: Mapping[str, tuple[str, ...]] = {
    "batch": ("rows",),
    "embed": ("rows",),
    "expert": ("columns",),
    "vocab": ("columns",),
    "heads": ("columns",),
    "kv_heads": ("columns",),
    "mlp": ("columns",),
}


class Grid:
    """Fits ``Sharder``. Of two dims for one mesh axis the first gets it, and the other is split over the rest of its own; dims that
    a split doesn't divide stay whole."""

    def __init__(
        self, axes: Mapping[str, int] | None = None, rules: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        axes = {"rows": 2, "columns": 4} if axes is None else axes
        self._rules = RULES if rules is None else rules
        self._mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))

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
        sharing: Sequence[str] = (),
    ) -> Callable[P, R]:
        """See ``Sharder``; a name is split in one way throughout the call."""

        def call(*args: P.args, **_: P.kwargs) -> R:
            shapes = [x.shape for x in cast("tuple[jax.Array, ...]", args)]
            splits = self.split(in_axes, shapes, sharing=sharing)
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
                axis_names=set(self._free() if over is None else itertools.chain(*splits.values())),
                check_vma=False,
            )
            return run(*args)

        return call

    def split(
        self, in_axes: Sequence[Axes], shapes: Sequence[Sequence[int]], /, *, sharing: Sequence[str] = ()
    ) -> dict[str, tuple[str, ...]]:
        """See ``Sharder``."""
        sizes: dict[str | None, int] = {}
        for axes, shape in zip(in_axes, shapes, strict=True):
            for name, size in zip(axes, shape, strict=True):
                sizes[name] = math.gcd(sizes.get(name, 0), size)
        splits = self._splits({name: size for name, size in sizes.items() if name not in sharing})
        for shared in sharing:
            alone = self._splits({shared: sizes[shared]})
            for name in {name for axes in in_axes if shared in axes for name in axes if name in splits}:
                if set(splits[name]) & set(alone.get(shared, ())):
                    del splits[name]
            splits |= alone
        return splits

    def _free(self) -> list[str]:
        taken = jax.sharding.get_abstract_mesh().manual_axes
        return [axis for axis in self._mesh.axis_names if axis not in taken]

    def _current(self) -> jax.sharding.Mesh | jax.sharding.AbstractMesh:
        around = jax.sharding.get_abstract_mesh()
        return around if around.manual_axes else self._mesh

    def _splits(self, sizes: Mapping[str | None, int]) -> dict[str, tuple[str, ...]]:
        splits: dict[str, tuple[str, ...]] = {}
        free = self._free()
        for name, size in sizes.items():
            wanted = self._rules.get(name or "", ())
            axes = tuple(axis for axis in wanted if axis in free)
            if axes and size % math.prod(self._mesh.shape[axis] for axis in axes) == 0:
                splits[name or ""] = axes
                free = [axis for axis in free if axis not in axes]
        return splits

    def _spec(self, axes: Axes, splits: Mapping[str, tuple[str, ...]]) -> PartitionSpec:
        return PartitionSpec(*(splits.get(name or "") for name in axes))
