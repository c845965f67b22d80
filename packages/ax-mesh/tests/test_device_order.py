"""Which device stands where: groups side by side, and no group with parts of two nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import jax
import numpy as np
import pytest
from ax_mesh import AxisSizeError, Mesh
from ax_mesh._device_order import arranged


@dataclass(frozen=True)
class Gpu:
    """As much of a device as its place depends on."""

    id: int
    process_index: int
    platform: str = "gpu"
    device_kind: str = "NVIDIA H100 80GB HBM3"


def _gpus(num_nodes: int, per_node: int) -> list[jax.Device]:
    """In an order that isn't that of their ids."""
    gpus = [Gpu(node * per_node + i, node) for i in range(per_node) for node in range(num_nodes)]
    return cast("list[jax.Device]", gpus)


def _ids(devices: np.ndarray) -> list[object]:
    return cast("list[object]", np.vectorize(lambda device: device.id, otypes=[int])(devices).tolist())


def test_nodes_stand_along_the_axes_between_them() -> None:
    assert _ids(arranged(_gpus(2, 4), (1, 4), (2, 1))) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert _ids(arranged(_gpus(2, 4), (2, 2), (2, 1))) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert _ids(arranged(_gpus(2, 4), (2, 2), (1, 2))) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert _ids(arranged(_gpus(4, 2), (4,), (2,))) == [0, 1, 2, 3, 4, 5, 6, 7]  # two nodes in one NVLink domain
    assert _ids(arranged(_gpus(1, 8), (4,), (2,))) == [0, 1, 2, 3, 4, 5, 6, 7]  # two domains in one node


def test_a_group_with_parts_of_two_nodes_is_refused() -> None:
    with pytest.raises(AxisSizeError, match="2 groups of 6 devices would cut through process 1"):
        arranged(_gpus(3, 4), (6,), (2,))


def test_host_devices_form_any_groups() -> None:
    mesh = Mesh.Config(axes={"fsdp": 2, "tensor": -1}, between={"data": 2}).build()
    assert mesh.axes == {"data": 2, "fsdp": 2, "tensor": 2}
    assert mesh.between == {"data": 2, "fsdp": 1, "tensor": 1}
    assert isinstance(mesh.jax_mesh, jax.sharding.Mesh)
    assert _ids(mesh.jax_mesh.devices) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
