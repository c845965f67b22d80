"""The table that shows where every parameter lives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ._layout import Placement

_HEAD = ("parameter", "form", "axes", "split over", "bytes/device", "whole dims, and why")


def table(mesh: Mapping[str, int], placements: Sequence[Placement]) -> str:
    """A text table with a row for each parameter and the sums below."""
    rows = [_HEAD, *(_row(mesh, placement) for placement in placements)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    whole = sum(placement.num_bytes() for placement in placements)
    each = sum(placement.num_bytes() // placement.num_shards(mesh) for placement in placements)
    copies = sum(placement.num_bytes() for placement in placements if placement.num_shards(mesh) == 1)
    axes = ", ".join(f"{name}={size}" for name, size in mesh.items())
    lines.append(
        f"{len(placements)} parameters, {whole:,} bytes; on each of the {math.prod(mesh.values())} devices ({axes}) "
        f"{each:,} bytes, {copies:,} of them replicated"
    )
    return "\n".join(lines)


def _row(mesh: Mapping[str, int], placement: Placement) -> tuple[str, ...]:
    spec = placement.spec
    whole = [
        f"{axis if axis is not None else f'dim {dim}'}: {choice.reason}"
        for dim, (axis, choice) in enumerate(zip(spec.axes, placement.choices, strict=True))
        if not choice.mesh_axes
    ]
    return (
        placement.path,
        f"{np.dtype(spec.dtype).name}[{','.join(map(str, spec.shape))}]",
        ", ".join("–" if axis is None else axis for axis in spec.axes),
        ", ".join("+".join(choice.mesh_axes) or "–" for choice in placement.choices),
        f"{placement.num_bytes() // placement.num_shards(mesh):,}",
        " | ".join(whole),
    )
