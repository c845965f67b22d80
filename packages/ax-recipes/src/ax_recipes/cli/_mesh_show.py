"""``ax mesh show``: the mesh of a recipe on an accelerator, and where the rules put every array of its training state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from ax_config import override
from ax_config.overrides import assignment
from ax_mesh import AcceleratorGroup, Mesh, Placement, accelerator_group
from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table

from ax_recipes._aot import described_mesh, loop_without_data
from ax_recipes._catalogue import effective
from ax_recipes._experiment import ExperimentError
from ax_recipes.protocols import SupportsAbstractState

_ROWS, _COLUMNS = 4, 8
"""How many devices of a group are drawn."""

_PARTS = {"params": "parameters", "opt_state": "optimizer"}


def show(name: str, *, on: str, overrides: tuple[str, ...]) -> None:
    """Print the mesh, the table of parameters and the totals of a recipe on an accelerator."""
    config = override(effective(name, on=on), [assignment(text, "--set") for text in overrides])
    group = accelerator_group(on)
    mesh = described_mesh(config, group)
    if not isinstance(mesh, Mesh):
        raise ExperimentError(f"ax mesh show tells of an ax_mesh.Mesh, but {name} has a {type(mesh).__qualname__}")
    _check_slices(mesh, group)
    loop = loop_without_data(config, mesh)
    if not isinstance(loop, SupportsAbstractState):
        raise ExperimentError(f"a {type(loop).__qualname__} can't tell its state; give it the method abstract_state")
    console = Console()
    console.print(f"[bold]{name}[/] on [bold]{on}[/]: {_hardware(group)}", highlight=False)
    console.print(_axes(mesh, config.mesh))
    console.print(_drawing(mesh))
    console.print(_parameters(mesh, mesh.placements(config.build().model.specs())))
    console.print(_totals(loop.abstract_state(), group, mesh))


def _check_slices(mesh: Mesh, group: AcceleratorGroup) -> None:
    num_between = math.prod(mesh.between.values())
    if group.accelerator.platform == "tpu" and num_between != group.num_slices:
        raise ExperimentError(
            f"{group.name} is {group.num_slices} slices, but mesh.between makes {num_between}: "
            "--set \"mesh.between={'data': -1}\""
        )


def _hardware(group: AcceleratorGroup) -> str:
    slices = f"{group.num_slices} slices of {group.chips_per_slice} chips" if group.num_slices > 1 else ""
    devices = "" if group.num_devices == group.num_chips else f", {group.num_devices:,} devices"
    each = "" if group.accelerator.hbm_gib is None else f", {_hbm_per_device(group) / 2**30:,.1f} GiB a device"
    return f"{slices or f'{group.num_chips:,} chips'}{devices}{each}"


def _hbm_per_device(group: AcceleratorGroup) -> float:
    assert group.accelerator.hbm_gib is not None
    return group.accelerator.hbm_gib * 2**30 / group.accelerator.devices_per_chip


def _axes(mesh: Mesh, config: object) -> Table:
    table = _table(
        ("axis", "left"), ("size", "right"), ("in a group", "right"), ("between", "right"), ("splits", "left")
    )
    rules = config.rules if isinstance(config, Mesh.Config) else ()
    for axis, size in mesh.axes.items():
        names = dict.fromkeys(name for name, target in rules if axis == target or axis in (target or ()))
        between = mesh.between[axis]
        table.add_row(
            axis, f"{size:,}", f"{size // between:,}", f"{between:,}" if between > 1 else "–", ", ".join(names)
        )
    return table


def _drawing(mesh: Mesh) -> Group:
    """One group of devices as a grid of numbers, by the last two axes that are split in it; and how many such there are."""
    within = {axis: size // mesh.between[axis] for axis, size in mesh.axes.items()}
    split = {axis: size for axis, size in within.items() if size > 1} or {next(iter(within)): 1}
    *outer, (down, rows), (right, columns) = [("", 1), *split.items()] if len(split) == 1 else list(split.items())
    shown = range(min(rows, _ROWS)), range(min(columns, _COLUMNS))
    width = len(str(rows * columns - 1))
    lines = [f"{' ' * len(down)}   {right} →"] if columns > 1 else []
    for row in shown[0]:
        cells = " ".join(str(row * columns + column).rjust(width) for column in shown[1])
        label = f"{down} ↓" if row == 0 and down else " " * (len(down) + 2 * bool(down))
        lines.append(f"{label} {cells}{' …' if columns > _COLUMNS else ''}")
    if rows > _ROWS:
        lines.append(f"{' ' * (len(down) + 3)}⋮")
    repeats = [f"× {size} {axis}" for axis, size in outer if axis]
    groups = [f"× {size} {axis}" for axis, size in mesh.between.items() if size > 1]
    inner = Panel("\n".join(lines), title=" ".join(repeats) or None, title_align="left", expand=False, box=box.SQUARE)
    if not groups:
        return Group(inner)
    title = f"{' '.join(groups)}, between slices or nodes"
    return Group(Panel(inner, title=title, title_align="left", expand=False, box=box.DOUBLE))


def _parameters(mesh: Mesh, placements: Sequence[Placement]) -> Table:
    table = _table(
        ("parameter", "left"),
        ("type", "left"),
        ("dims", "left"),
        ("bytes/device", "right"),
        ("copies", "right"),
        ("whole dims, and why", "left"),
    )
    num_devices = math.prod(mesh.axes.values())
    absent: dict[str, dict[str, None]] = {}
    for placement in placements:
        num_shards = placement.num_shards(mesh.axes)
        named = list(zip(placement.spec.axes, placement.spec.shape, placement.choices, strict=True))
        dims = [
            f"{axis or '·'} {size:,}" + "".join(f"/{over}" for over in choice.mesh_axes) for axis, size, choice in named
        ]
        reasons: dict[str, list[str]] = {}
        for axis, _, choice in named:
            if axis is not None and choice.absent:
                absent.setdefault(" and ".join(choice.absent), {})[axis] = None
            elif axis is not None and not choice.mesh_axes:
                reasons.setdefault(choice.reason, []).append(axis)
        table.add_row(
            placement.path,
            np.dtype(placement.spec.dtype).name,
            " × ".join(dims) or "scalar",
            _bytes(placement.num_bytes() / num_shards),
            f"{num_devices // num_shards:,}" if num_shards < num_devices else "–",
            "; ".join(f"{', '.join(axes)}: {reason}" for reason, axes in reasons.items()),
        )
    if absent:
        lacking = "; ".join(f"{over}: {', '.join(names)}" for over, names in absent.items())
        table.caption = f"Whole everywhere, since the mesh isn't split along {lacking}"
    return table


class _Held(NamedTuple):
    """Of a part of the state, in bytes."""

    whole: int
    per_device: int
    replicated: int
    """Of those on each device, what every other device holds as well."""


def _totals(state: object, group: AcceleratorGroup, mesh: Mesh) -> Table:
    table = _table(
        ("state", "left"),
        ("in all", "right"),
        ("on each device", "right"),
        ("of its memory", "right"),
        ("of which on every device", "right"),
    )
    parts = list(_parts(state))
    total = _Held(*(sum(sizes) for sizes in zip(*(held for _, held in parts), strict=True)))
    for part, held in [*parts, ("together", total)]:
        share = "–" if group.accelerator.hbm_gib is None else f"{held.per_device / _hbm_per_device(group):.1%}"
        table.add_row(part, _bytes(held.whole), _bytes(held.per_device), share, _bytes(held.replicated))
    table.caption = f"on {math.prod(mesh.axes.values()):,} devices. Gradients and what a step computes come on top: ax mesh table compiles it"
    return table


def _parts(state: object) -> Iterator[tuple[str, _Held]]:
    leaves: dict[str, list[jax.ShapeDtypeStruct]] = {"parameters": [], "optimizer": [], "step and key": []}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        part = jax.tree_util.keystr(path[:1], simple=True)
        leaves[_PARTS.get(part, "step and key")].append(leaf)
    for part, found in leaves.items():
        sizes = [(_size(leaf, leaf.shape), _size(leaf, leaf.sharding.shard_shape(leaf.shape))) for leaf in found]
        yield (
            part,
            _Held(
                sum(whole for whole, _ in sizes),
                sum(shard for _, shard in sizes),
                sum(shard for whole, shard in sizes if shard == whole),
            ),
        )


def _size(leaf: jax.ShapeDtypeStruct, shape: Sequence[int]) -> int:
    return int(math.prod(shape) * np.dtype(leaf.dtype).itemsize)


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption_justify="left")
    for title, justify in columns:
        table.add_column(title, justify="right" if justify == "right" else "left", overflow="fold")
    return table


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} GiB"
