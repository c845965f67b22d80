"""The makers' own libraries describe the devices that names stand for, and their compilers take them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_mesh import ACCELERATORS, Mesh, accelerator_group, accelerator_name, topology
from jax.sharding import NamedSharding, PartitionSpec

ONE_HOST = [row.one_host for row in ACCELERATORS if row.platform in {"tpu", "cuda"}]
SEVERAL = ["v4-4096", "v5e-256", "v5p-512", "v5p-1024", "v6e-256x4", "tpu7x-128", "h100-64", "h100-256", "gb200-72"]


@pytest.mark.parametrize("name", [*ONE_HOST, *SEVERAL])
def test_the_described_devices_are_those_of_the_name(name: str) -> None:
    devices = topology(name)
    group = accelerator_group(name)
    assert len(devices) == group.num_devices
    assert accelerator_name(devices) == name
    places = {
        (*getattr(d, "coords", (d.id,)), getattr(d, "core_on_chip", 0), getattr(d, "slice_index", 0)) for d in devices
    }
    assert len(places) == len(devices), "each device has a place of its own"
    if group.num_slices > 1:
        assert {device.slice_index for device in devices} == set(range(group.num_slices))


@pytest.mark.parametrize("name", ONE_HOST)
def test_a_sharded_matmul_compiles_for_each(name: str) -> None:
    devices = topology(name)
    mesh = Mesh.Config(axes={"fsdp": len(devices)}).build(devices=devices)
    rows = NamedSharding(mesh.jax_mesh, PartitionSpec("fsdp"))
    weight, x = (jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=rows) for shape in ((1024, 512), (2048, 1024)))
    with mesh.activate():
        compiled = jax.jit(jnp.matmul).lower(x, weight).compile()
    memory = compiled.memory_analysis()
    assert memory is not None
    assert memory.argument_size_in_bytes >= 2 * (1024 * 512 + 2048 * 1024) // len(devices)
    assert "all-gather" in (compiled.as_text() or "")
    assert np.prod(compiled.output_shardings.shard_shape((2048, 512))) == 2048 * 512 // len(devices)
