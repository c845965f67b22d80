"""Which device stands where in a mesh, so that neighbours along fast axes are joined by fast links.

Devices come in groups: TPU chips in slices, GPUs in NVLink domains. Within a group ``jax.experimental.mesh_utils`` lays the
last axes along the torus, or in the order of the links. Groups are laid out by the axes between them: in the mesh an axis that
has both a size within groups and one between them runs through a whole group before it goes on to the next.

TPU devices tell their slice. For other devices the groups follow from the sizes asked for: they are runs of equal length in
the order of the devices' ids, in which those of one node stand together. A node that holds eight GPUs may be one group or
several, a rack of nodes in one NVLink domain may be one group; but no group holds parts of two nodes.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils

from ._resolve import AxisSizeError


def num_slices(devices: Sequence[jax.Device], /) -> int | None:
    """In how many TPU slices the devices lie; None for devices that don't tell."""
    return len(_by_slice(devices)) if devices[0].platform == "tpu" else None


def num_processes(devices: Sequence[jax.Device], /) -> int:
    """How many processes own the devices."""
    return len({device.process_index for device in devices})


def arranged(devices: Sequence[jax.Device], within: Sequence[int], between: Sequence[int], /) -> np.ndarray:
    """The devices in an array whose dims have the sizes ``within · between``; both are as long as the mesh has axes.

    Raises AxisSizeError when a group would hold parts of two nodes.
    """
    # Without splitting, each axis of the torus serves one axis of the mesh; where sizes allow that, it is what is done.
    blocks = [
        mesh_utils.create_device_mesh(tuple(within), group, allow_split_physical_axes=True)
        for group in _groups(devices, math.prod(between))
    ]
    num_axes = len(within)
    outer_then_inner = np.stack(blocks).reshape(*between, *within)
    paired = [axis for pair in zip(range(num_axes), range(num_axes, 2 * num_axes), strict=True) for axis in pair]
    sizes = [inner * outer for inner, outer in zip(within, between, strict=True)]
    return outer_then_inner.transpose(paired).reshape(sizes)


def _groups(devices: Sequence[jax.Device], number: int) -> list[list[jax.Device]]:
    if number == 1:
        return [list(devices)]
    if devices[0].platform == "tpu":
        return [group for _, group in sorted(_by_slice(devices).items())]
    ordered = sorted(devices, key=lambda device: device.id)
    size = len(ordered) // number
    groups = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    owners = [{device.process_index for device in group} for group in groups]
    for one, other in itertools.pairwise(owners):
        if one & other and len(one | other) > 1:
            raise AxisSizeError(
                f"{number} groups of {size} devices would cut through process {min(one & other)}, whose devices share a "
                "group with another's; choose sizes with which a group is some whole nodes, or a part of one"
            )
    return groups


def _by_slice(devices: Sequence[jax.Device]) -> dict[int, list[jax.Device]]:
    slices = defaultdict(list)
    for device in devices:
        slices[int(getattr(device, "slice_index", 0))].append(device)
    return slices
