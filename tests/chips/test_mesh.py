"""Device order on real topologies: axes of the mesh lie along the torus, within slices, within nodes."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from ax_config import setting
from ax_mesh import AxisSizeError, Mesh, accelerator_group, topology
from ax_recipes import effective
from ax_recipes._aot import lower


def mesh_over(name: str, config: Mesh.Config) -> tuple[Mesh, np.ndarray]:
    mesh = config.build(devices=topology(name))
    assert isinstance(mesh.jax_mesh, jax.sharding.Mesh)
    return mesh, mesh.jax_mesh.devices


def places(devices: np.ndarray) -> np.ndarray:
    """Each device's chip: its coordinates, and its slice."""
    found = [(*device.coords, getattr(device, "slice_index", 0)) for device in devices.flat]
    return np.array(found).reshape(*devices.shape, 4)


def test_an_axis_takes_whole_dims_of_the_torus() -> None:
    """A v5p-512 is 4 × 8 × 8: 64 ways are one plane of it, 4 ways the ring that is left."""
    _, devices = mesh_over("v5p-512", Mesh.Config(axes={"data": 4, "fsdp": 64}))
    x, y, z, _ = np.moveaxis(places(devices), -1, 0)
    assert all(len(set(row)) == 1 for row in x)
    assert all(len(set(zip(*plane, strict=True))) == 64 for plane in zip(y, z, strict=True))
    assert all(len(set(ring)) == 4 for ring in x.T)


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_neighbours_along_a_fast_axis_are_joined_by_a_link(tensor: int) -> None:
    """Also where the axis is shorter than any ring, which is cut then."""
    _, devices = mesh_over("v5p-512", Mesh.Config(axes={"fsdp": -1, "tensor": tensor}))
    steps = np.abs(np.diff(places(devices), axis=1)).sum(axis=-1)
    np.testing.assert_array_equal(steps, 1)


def test_the_two_devices_of_a_chip_are_nearest() -> None:
    _, devices = mesh_over("tpu7x-128", Mesh.Config(axes={"fsdp": -1, "tensor": 2}))
    chips = places(devices)
    np.testing.assert_array_equal(chips[:, 0], chips[:, 1])
    assert {(a.core_on_chip, b.core_on_chip) for a, b in devices} == {(0, 1)}


def test_axes_between_slices() -> None:
    mesh, devices = mesh_over("v5e-16x4", Mesh.Config(axes={"data": 2, "fsdp": -1}, between={"data": -1}))
    assert mesh.axes == {"data": 8, "fsdp": 8}
    slices = places(devices)[..., 3]
    np.testing.assert_array_equal(slices, np.repeat(np.arange(4), 2)[:, None] * np.ones(8, int))
    with pytest.raises(AxisSizeError, match="the 64 devices are in 4 slices"):
        mesh_over("v5e-16x4", Mesh.Config())
    with pytest.raises(AxisSizeError, match=r"between data=2 for 4 groups.*Legal are: data=4"):
        mesh_over("v5e-16x4", Mesh.Config(axes={"fsdp": -1}, between={"data": 2}))


@pytest.mark.parametrize(
    ("name", "num_groups", "nodes_per_group"), [("h100-64", 8, 1), ("h100-64", 4, 2), ("gb200-72", 2, 9)]
)
def test_axes_between_nodes_and_nvlink_domains(name: str, num_groups: int, nodes_per_group: int) -> None:
    _, devices = mesh_over(name, Mesh.Config(axes={"fsdp": -1}, between={"data": num_groups}))
    nodes = [{device.process_index for device in group} for group in devices]
    assert [len(group) for group in nodes] == [nodes_per_group] * num_groups
    assert len(set.union(*nodes)) == num_groups * nodes_per_group


def test_a_node_is_a_group_where_both_sizes_are_open() -> None:
    mesh, _ = mesh_over("h100-64", Mesh.Config(axes={"fsdp": -1}, between={"data": -1}))
    assert mesh.axes == {"data": 8, "fsdp": 8}


@pytest.mark.parametrize("name", ["h100-8", "v5e-8"])
def test_zero_one_sums_gradients_into_parts_and_gathers_parameters(name: str) -> None:
    def compiled(*rules: tuple[str, str]) -> jax.stages.Compiled:
        config = setting(Mesh, optimizer_rules=rules)(effective("tiny", on=name))
        return lower(config, accelerator_group(name)).compile()

    def held(program: jax.stages.Compiled) -> int:
        memory = program.memory_analysis()
        assert memory is not None
        return int(memory.argument_size_in_bytes)

    whole, split = compiled(), compiled(("embed", "data"))
    assert held(split) < 0.6 * held(whole), "of parameters and two moments, a third and two eighths of thirds are left"
    assert "all-gather" not in (whole.as_text() or "")
    assert "all-gather" in (split.as_text() or "")
    if name == "h100-8":  # The TPU's compiler writes it in other ways.
        assert "reduce-scatter" in (split.as_text() or "")
