"""Devices in a grid with named axes, and the rules by which logical names fall onto them.

One object answers for both sides of training: a trainer asks where parameters and batches live (``shardings``,
``replicated``, ``put``, ``activate``), a model where its activations go and how a kernel is run shard by shard
(``constrain``, ``shard_map``). Both get their answers from :func:`choose`. On one device all of it is the identity.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar, cast, final

import ax_config
import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from ._describe import Placement, table
from ._resolve import resolve_axes
from ._rules import DEFAULT_RULES, DimChoice, Indivisible, Rule, ShardingRuleError, check_rules, choose
from ._shard_map import Axes, names_to_mesh_axes
from .protocols import HasAxes

P = ParamSpec("P")
R = TypeVar("R")


@final
class Mesh:
    """A mesh over ``devices`` (all of the job's unless given). Fits a trainer's ``Partitioner`` and a model's ``Sharder``.

    Raises AxisSizeError when the axes don't fit the devices, ShardingRuleError when a rule names an unknown mesh axis.
    """

    class Config(ax_config.Config["Mesh"]):
        """Axes of the mesh in the order from slow to fast links, one of them -1 (inferred); and the rules.

        ``indivisible`` says what becomes of a dim whose size no rule divides: an error, or whole on every device.
        """

        axes: dict[str, int] = ax_config.field(default_factory=lambda: {"data": 1, "fsdp": -1})
        rules: tuple[Rule, ...] = DEFAULT_RULES
        indivisible: Indivisible = "error"

    def __init__(self, cfg: Config, /, *, devices: Sequence[jax.Device] | None = None) -> None:
        devices = jax.devices() if devices is None else list(devices)
        self._axes = resolve_axes(cfg.axes, len(devices))
        check_rules(cfg.rules, self._axes)
        self._rules = cfg.rules
        self._indivisible = cfg.indivisible
        self._mesh = jax.make_mesh(
            tuple(self._axes.values()),
            tuple(self._axes),
            axis_types=(AxisType.Auto,) * len(self._axes),
            devices=devices,
        )
        self._only_device = devices[0] if len(devices) == 1 else None

    @property
    def axes(self) -> Mapping[str, int]:
        """The size of each axis, none left open."""
        return dict(self._axes)

    @property
    def jax_mesh(self) -> jax.sharding.Mesh:
        """The mesh as JAX knows it."""
        return self._mesh

    def shardings(self, specs: object, /) -> object:
        """A pytree of shardings congruent to ``specs``, whose leaves tell ``shape``, ``dtype`` and ``axes``.

        Raises ShardingRuleError that names the parameter, the dim, and what was tried.
        """
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: self._sharding(self._choose(leaf, _name(path))), specs, is_leaf=_is_spec
        )

    def replicated(self) -> Sharding:
        """The sharding of what every device holds whole."""
        return self._sharding(())

    def put(self, batch: Mapping[str, np.ndarray], /) -> dict[str, jax.Array]:
        """The batch on the devices, split along its first dim by the rules for "batch"; each process gives its own part."""
        return {name: self._put(name, array) for name, array in batch.items()}

    def activate(self) -> contextlib.AbstractContextManager[None]:
        """A context in which JAX knows the mesh, for code that names shardings by partition specs alone."""
        return contextlib.nullcontext() if self._only_device is not None else self._activated()

    def constrain(self, x: jax.Array, axes: Axes, /) -> jax.Array:
        """``x`` again, laid out as the rules for ``axes`` say; ``len(axes) == x.ndim``."""
        choices = self._resolve(axes, x.shape, f"an activation with the axes {tuple(axes)}")
        if self._only_device is not None:
            return x
        constrained: jax.Array = jax.lax.with_sharding_constraint(x, NamedSharding(self._current(), _spec(choices)))
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
        """``fn`` run on each device's own shard of its arrays, one entry of ``in_axes`` for each.

        A logical name is split in one way throughout the call, and a mesh axis serves one name. Names that occur in
        ``out_axes`` alone aren't split. Values that ``fn`` returns must not differ between devices along mesh axes that
        its results' names aren't split over. Each name in ``sharing`` is split as if it were alone; only names that meet it in
        an array give way. With ``over``, arrays are split along those names alone, and the compiler
        goes on to partition ``fn`` along all other mesh axes; calls may be nested.
        """
        if self._only_device is not None:
            return fn

        def sharded(*args: P.args, **kwargs: P.kwargs) -> R:
            arrays = cast("tuple[jax.Array, ...]", args)
            if kwargs or len(arrays) != len(in_axes):
                raise TypeError(f"takes {len(in_axes)} arrays by position, got {len(arrays)} and {sorted(kwargs)}")
            split = self.split(in_axes, [x.shape for x in arrays], sharing=sharing)
            if over is not None:
                split = {name: axes for name, axes in split.items() if name in over}
                if not split:
                    return fn(*args, **kwargs)

            def spec(axes: Axes) -> PartitionSpec:
                return PartitionSpec(*(split.get(name) if name is not None else None for name in axes))

            one_result = not out_axes or isinstance(out_axes[0], str) or out_axes[0] is None
            manual = self._free() if over is None else (axis for axes in split.values() for axis in axes)
            run: Callable[..., R] = jax.shard_map(
                fn,
                mesh=self._current(),
                in_specs=tuple(spec(axes) for axes in in_axes),
                out_specs=spec(cast("Axes", out_axes))
                if one_result
                else tuple(spec(axes) for axes in cast("Sequence[Axes]", out_axes)),
                axis_names=set(manual),
                check_vma=False,  # Kernels don't tell how their results vary over the mesh.
            )
            return run(*arrays)

        return sharded

    def split(
        self, in_axes: Sequence[Axes], shapes: Sequence[Sequence[int]], /, *, sharing: Sequence[str] = ()
    ) -> Mapping[str, tuple[str, ...]]:
        """The mesh axes over which ``shard_map`` would split each name; names that aren't split are left out."""
        return {} if self._only_device is not None else names_to_mesh_axes(in_axes, shapes, self._resolve, sharing)

    def describe(self, specs: object, /) -> str:
        """A table of every parameter: its form, its sharding, bytes on each device, what is whole and why."""
        leaves, _ = jax.tree_util.tree_flatten_with_path(specs, is_leaf=_is_spec)
        return table(
            self._axes, [Placement(_name(path), leaf, self._choose(leaf, _name(path))) for path, leaf in leaves]
        )

    @contextlib.contextmanager
    def _activated(self) -> Iterator[None]:
        with jax.set_mesh(self._mesh):
            yield

    def _choose(self, leaf: object, path: str) -> tuple[DimChoice, ...]:
        if not isinstance(leaf, HasAxes):
            raise ShardingRuleError(f"{path}: wanted something with shape, dtype and axes, got {type(leaf).__name__}")
        return self._resolve(leaf.axes, leaf.shape, path)

    def _resolve(self, axes: Axes, shape: Sequence[int], what: str) -> tuple[DimChoice, ...]:
        return choose(axes, shape, rules=self._rules, mesh=self._free(), indivisible=self._indivisible, what=what)

    def _free(self) -> dict[str, int]:
        """The axes that code here may still be split over: within a ``shard_map``, those that it isn't over."""
        taken = jax.sharding.get_abstract_mesh().manual_axes
        return {name: size for name, size in self._axes.items() if name not in taken}

    def _current(self) -> jax.sharding.Mesh | jax.sharding.AbstractMesh:
        """What shardings refer to here: within a ``shard_map`` JAX wants the mesh as that call left it."""
        around = jax.sharding.get_abstract_mesh()
        return around if around.manual_axes else self._mesh

    def _sharding(self, choices: Sequence[DimChoice]) -> Sharding:
        if self._only_device is not None:
            return SingleDeviceSharding(self._only_device)
        return NamedSharding(self._mesh, _spec(choices))

    def _put(self, name: str, array: np.ndarray) -> jax.Array:
        if array.ndim == 0:
            scalar: jax.Array = jax.device_put(array, self.replicated())
            return scalar
        num_rows = array.shape[0] * jax.process_count()
        (choice,) = choose(
            ("batch",), (num_rows,), rules=self._rules, mesh=self._axes, indivisible="error", what=f"batch[{name!r}]"
        )
        split: jax.Array = jax.make_array_from_process_local_data(self._sharding((choice,)), array)
        return split


def _is_spec(x: object) -> bool:
    return isinstance(x, HasAxes)


def _name(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _spec(choices: Sequence[DimChoice]) -> PartitionSpec:
    return PartitionSpec(*(_entry(choice.mesh_axes) for choice in choices))


def _entry(mesh_axes: tuple[str, ...]) -> str | tuple[str, ...] | None:
    return None if not mesh_axes else mesh_axes[0] if len(mesh_axes) == 1 else mesh_axes
