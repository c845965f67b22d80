"""A mesh and its rules by hand: eight devices in a grid, batches over its rows, widths over its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ParamSpec, TypeVar, cast

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

Axes = Sequence[str | None]
P = ParamSpec("P")
R = TypeVar("R")
RULES = {"batch": "row", "embed": "column"}


def _spec(axes: Axes, over: Sequence[str] = tuple(RULES)) -> PartitionSpec:
    return PartitionSpec(*(RULES[name] if name is not None and name in over else None for name in axes))


class NamedShardings:
    """Fits ``Partitioner`` of ax-trainer and ``Sharder`` of ax-layers."""

    def __init__(self) -> None:
        auto = jax.sharding.AxisType.Auto
        self._mesh = jax.make_mesh((4, 2), ("row", "column"), axis_types=(auto, auto))

    def shardings(self, specs: object, /) -> object:
        return jax.tree.map(lambda spec: NamedSharding(self._mesh, _spec(spec.axes)), specs)

    def replicated(self) -> NamedSharding:
        return NamedSharding(self._mesh, PartitionSpec())

    def put(self, batch: Mapping[str, np.ndarray], /) -> dict[str, jax.Array]:
        return {name: jax.device_put(x, NamedSharding(self._mesh, PartitionSpec("row"))) for name, x in batch.items()}

    def activate(self) -> AbstractContextManager[None]:
        return nullcontext()

    def constrain(self, x: jax.Array, axes: Axes, /) -> jax.Array:
        around = jax.sharding.get_abstract_mesh()
        mesh = around if around.manual_axes else self._mesh
        spec = _spec(axes, [name for name, axis in RULES.items() if axis not in around.manual_axes])
        constrained: jax.Array = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
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
        names = tuple(RULES) if over is None else tuple(name for name in RULES if name in over)
        one_result = all(isinstance(axes, str | None) for axes in out_axes)
        return jax.shard_map(
            fn,
            mesh=self._mesh,
            in_specs=tuple(_spec(axes, names) for axes in in_axes),
            out_specs=_spec(cast("Axes", out_axes), names)
            if one_result
            else tuple(_spec(axes, names) for axes in cast("Sequence[Axes]", out_axes)),
            axis_names={RULES[name] for name in names},
            check_vma=False,
        )

    def split(
        self, in_axes: Sequence[Axes], shapes: Sequence[Sequence[int]], /, *, sharing: Sequence[str] = ()
    ) -> dict[str, tuple[str, ...]]:
        assert len(in_axes) == len(shapes)
        return {name: (RULES[name],) for axes in in_axes for name in axes if name in RULES}
