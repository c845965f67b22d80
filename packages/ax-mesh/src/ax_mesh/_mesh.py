"""Devices in a grid with named axes, and the rules by which logical names fall onto them.

One object answers for both sides of training: a trainer asks where parameters and batches live (``shardings``,
``replicated``, ``put``, ``activate``), a model where its activations go and how a kernel is run shard by shard
(``constrain``, ``shard_map``). Both get their answers from one :class:`Layout`. On one device all of it is the identity.

A mesh can be made of a number of devices that are nowhere. It says where arrays would go, and programs can be lowered for it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar, cast, final

import ax_config
import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from ._describe import table
from ._device_order import arranged, num_processes, num_slices
from ._layout import Layout, Placement
from ._process_rows import from_processes
from ._resolve import Sizes, resolve
from ._rules import DEFAULT_RULES, DimChoice, Indivisible, Rule
from ._shard_map import Axes, names_to_mesh_axes

P = ParamSpec("P")
R = TypeVar("R")


@final
class Mesh:
    """A mesh over ``devices``. Fits a trainer's ``Partitioner`` and a model's ``Sharder``.

    Args:
        cfg: Axes and rules.
        devices: All of the job's unless given. A number makes a mesh of so many devices that are nowhere.
        num_groups: Of a number of devices, how many TPU slices or nodes they are in, where ``cfg`` doesn't decide it.

    Raises:
        AxisSizeError: The axes don't fit the devices.
        ShardingRuleError: A rule names an unknown mesh axis.
    """

    class Config(ax_config.Config["Mesh"]):
        """Axes of the mesh in the order from slow to fast links, and the rules by which arrays fall onto them.

        ``axes`` are sizes within a group of devices that fast links join, ``between`` those between groups: TPU slices, nodes or
        NVLink domains of GPUs. An axis in both has the product as its size. In each one size may be -1, which is inferred;
        with an empty ``between`` all devices are one group.

        ``overrides`` are rules that stand before the page's for parameters and modules whose path matches a pattern, such as
        ``{"layers/attention*": (("heads", None),)}``. ``optimizer_rules`` stand before all others for what the optimizer
        remembers of parameters (ZeRO-1). ``indivisible`` says what becomes of a dim whose size no rule divides: an error, or
        whole on every device.
        """

        axes: dict[str, int] = ax_config.field(default_factory=lambda: {"data": 1, "fsdp": -1})
        between: dict[str, int] = ax_config.field(default_factory=dict)
        rules: tuple[Rule, ...] = DEFAULT_RULES
        overrides: dict[str, tuple[Rule, ...]] = ax_config.field(default_factory=dict)
        optimizer_rules: tuple[Rule, ...] = ()
        indivisible: Indivisible = "error"
        compiler_options: dict[str, str | bool] = ax_config.field(
            default_factory=dict, help='XLA\'s options for programs on this mesh, such as compiler_options("v5e")'
        )

    def __init__(
        self, cfg: Config, /, *, devices: Sequence[jax.Device] | int | None = None, num_groups: int | None = None
    ) -> None:
        self._sizes, self._mesh = _made(cfg, jax.devices() if devices is None else devices, num_groups)
        self._layout = Layout(
            self._sizes.total(), cfg.rules, cfg.overrides, cfg.optimizer_rules, indivisible=cfg.indivisible
        )
        self._only_device = (
            self._mesh.devices.flat[0]
            if isinstance(self._mesh, jax.sharding.Mesh) and self._mesh.devices.size == 1
            else None
        )
        self._compiler_options = cfg.compiler_options
        self._path = ""
        self._modules: set[str] = set()

    @property
    def axes(self) -> Mapping[str, int]:
        """The size of each axis, none left open."""
        return dict(self._layout.mesh)

    @property
    def between(self) -> Mapping[str, int]:
        """How much of each axis's size lies between groups of devices; 1 for an axis within groups."""
        return dict(self._sizes.between)

    @property
    def jax_mesh(self) -> jax.sharding.Mesh | AbstractMesh:
        """The mesh as JAX knows it; abstract if it was made of a number of devices."""
        return self._mesh

    @property
    def compiler_options(self) -> Mapping[str, str | bool]:
        """What XLA is told when a program for this mesh is compiled."""
        return dict(self._compiler_options)

    def shardings(self, specs: object, /) -> object:
        """A pytree of shardings congruent to ``specs``, a model's parameters, whose leaves tell ``shape``, ``dtype`` and ``axes``.

        Raises ShardingRuleError that names the parameter, the dim, and what was tried; or an override that matches nothing.
        """
        return self._shardings(self._layout.parameters(specs, modules=self._modules))

    def optimizer_shardings(self, specs: object, /) -> object:
        """As ``shardings``, of what the optimizer remembers of each parameter: ``optimizer_rules`` stand first."""
        return self._shardings(self._layout.optimizer_state(specs))

    def replicated(self) -> Sharding:
        """The sharding of what every device holds whole."""
        return self._sharding(())

    def put(self, batch: Mapping[str, np.ndarray], /) -> dict[str, jax.Array]:
        """The batch on the devices, split along its first dim by the rules for "batch"; each process gives its own part.

        Raises ShardingRuleError when no rule fits the number of rows, a policy of whole dims notwithstanding.
        """
        return {name: self._put(name, array) for name, array in batch.items()}

    def batch_sharding(self, num_rows: int, /, *, what: str = "a batch") -> Sharding:
        """Where ``put`` puts arrays of so many rows, over all processes; ``what`` names them in errors."""
        (choice,) = self._layout.choose(("batch",), (num_rows,), path="", what=what, indivisible="error")
        return self._sharding((choice,))

    def activate(self) -> contextlib.AbstractContextManager[None]:
        """A context in which JAX knows the mesh, for code that names shardings by partition specs alone."""
        return contextlib.nullcontext() if self._only_device is not None else self._activated()

    def at(self, path: str, /) -> Mesh:
        """This mesh for the module at ``path``: with the overrides that match it, and its path in errors."""
        there = copy.copy(self)
        there._path = path
        self._modules.add(path)
        return there

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

    def placements(self, specs: object, /) -> Sequence[Placement]:
        """Where each parameter goes, and why its whole dims are whole. Raises as ``shardings``."""
        return jax.tree.leaves(self._layout.parameters(specs, modules=self._modules))

    def describe(self, specs: object, /) -> str:
        """A table of every parameter: its form, its sharding, bytes on each device, what is whole and why."""
        return table(self.axes, self.placements(specs))

    @contextlib.contextmanager
    def _activated(self) -> Iterator[None]:
        if isinstance(self._mesh, jax.sharding.Mesh):
            with jax.set_mesh(self._mesh):
                yield
        else:
            with jax.sharding.use_abstract_mesh(self._mesh):
                yield

    def _resolve(self, axes: Axes, shape: Sequence[int], what: str) -> tuple[DimChoice, ...]:
        # Within a shard_map, code may still be split over the mesh axes that the call isn't over.
        taken = jax.sharding.get_abstract_mesh().manual_axes
        where = f"{self._path}: {what}" if self._path else what
        return self._layout.choose(axes, shape, path=self._path, what=where, taken=taken)

    def _current(self) -> jax.sharding.Mesh | AbstractMesh:
        """What shardings refer to here: within a ``shard_map`` JAX wants the mesh as that call left it."""
        around = jax.sharding.get_abstract_mesh()
        return around if around.manual_axes else self._mesh

    def _free(self) -> set[str]:
        return set(self._layout.mesh) - set(jax.sharding.get_abstract_mesh().manual_axes)

    def _shardings(self, placements: object) -> object:
        return jax.tree.map(lambda placement: self._sharding(placement.choices), placements)

    def _sharding(self, choices: Sequence[DimChoice]) -> Sharding:
        if self._only_device is not None:
            return SingleDeviceSharding(self._only_device)
        return NamedSharding(self._mesh, _spec(choices))

    def _put(self, name: str, array: np.ndarray) -> jax.Array:
        if array.ndim == 0:
            scalar: jax.Array = jax.device_put(array, self.replicated())
            return scalar
        return from_processes(array, self.batch_sharding(array.shape[0] * jax.process_count(), what=f"batch[{name!r}]"))


def _made(
    cfg: Mesh.Config, devices: Sequence[jax.Device] | int, num_groups: int | None
) -> tuple[Sizes, jax.sharding.Mesh | AbstractMesh]:
    both_open = -1 in cfg.axes.values() and -1 in cfg.between.values()
    if isinstance(devices, int):
        sizes = resolve(cfg.axes, cfg.between, devices, num_groups if both_open else None)
        total = sizes.total()
        return sizes, AbstractMesh(tuple(total.values()), tuple(total), axis_types=_auto(total))
    num_groups = num_slices(devices)
    if num_groups is None and both_open:
        num_groups = num_processes(devices)
    sizes = resolve(cfg.axes, cfg.between, len(devices), num_groups)
    order = arranged(devices, tuple(sizes.within.values()), tuple(sizes.between.values()))
    return sizes, jax.sharding.Mesh(order, tuple(sizes.within), axis_types=_auto(sizes.within))


def _auto(axes: Mapping[str, int]) -> tuple[AxisType, ...]:
    return (AxisType.Auto,) * len(axes)


def _spec(choices: Sequence[DimChoice]) -> PartitionSpec:
    return PartitionSpec(*(_entry(choice.mesh_axes) for choice in choices))


def _entry(mesh_axes: tuple[str, ...]) -> str | tuple[str, ...] | None:
    return None if not mesh_axes else mesh_axes[0] if len(mesh_axes) == 1 else mesh_axes
