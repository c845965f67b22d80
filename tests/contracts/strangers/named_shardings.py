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


def _spec(axes: Axes) -> PartitionSpec:
    return PartitionSpec(*(RULES.get(name or "") for name in axes))


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
        constrained: jax.Array = jax.lax.with_sharding_constraint(x, NamedSharding(self._mesh, _spec(axes)))
        return constrained

    def shard_map(
        self, fn: Callable[P, R], /, *, in_axes: Sequence[Axes], out_axes: Axes | Sequence[Axes]
    ) -> Callable[P, R]:
        one_result = all(isinstance(axes, str | None) for axes in out_axes)
        return jax.shard_map(
            fn,
            mesh=self._mesh,
            in_specs=tuple(map(_spec, in_axes)),
            out_specs=_spec(cast("Axes", out_axes))
            if one_result
            else tuple(map(_spec, cast("Sequence[Axes]", out_axes))),
        )
