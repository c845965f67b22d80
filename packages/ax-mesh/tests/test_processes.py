"""Two processes with two devices each: every one gives its part of the batch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

_PROCESS = """
import sys
import jax, jax.numpy as jnp, numpy as np
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))
from ax_mesh import Mesh, reshard
from ax_mesh.testing import ToySpec
mesh = Mesh.Config(axes={"data": 2, "fsdp": 2}).build()
rank = jax.process_index()
batch = mesh.put({"x": np.full((4, 3), rank + 1, np.float32), "scale": np.float32(2) * np.ones((), np.float32)})
assert batch["x"].shape == (8, 3), batch["x"].shape
assert all((shard.data == rank + 1).all() for shard in batch["x"].addressable_shards)
with mesh.activate():
    total = jax.jit(lambda b: jnp.sum(b["x"]) * b["scale"], out_shardings=mesh.replicated())(batch)
assert float(total) == 72.0, total
split = Mesh.Config(axes={"tensor": 4}).build().put({"x": np.full((4, 3), rank + 1, np.float32)})["x"]
assert split.shape == (8, 3) and split.is_fully_replicated  # every process needs the rows of all
for shard in split.addressable_shards:
    assert sorted(np.asarray(shard.data)[:, 0].tolist()) == [1, 1, 1, 1, 2, 2, 2, 2], shard.data
hybrid = Mesh.Config(axes={"fsdp": -1}, between={"data": -1}).build()  # each process a group
assert hybrid.axes == {"data": 2, "fsdp": 2} and hybrid.between == {"data": 2, "fsdp": 1}
for row, group in enumerate(hybrid.jax_mesh.devices):
    assert {device.process_index for device in group} == {row}
specs = {"w": ToySpec((4, 6), ("embed", "mlp"))}
state = {"w": jax.make_array_from_callback((4, 6), mesh.shardings(specs)["w"], lambda at: np.arange(24.0).reshape(4, 6)[at])}
turned = Mesh.Config(axes={"tensor": 2, "fsdp": 2}).build(devices=jax.devices()[::-1]).shardings(specs)
for moved in (reshard(state, turned)["w"], reshard(state, turned, donate=True)["w"]):
    assert moved.sharding == turned["w"]
    for shard in moved.addressable_shards:
        np.testing.assert_array_equal(shard.data, np.arange(24.0).reshape(4, 6)[shard.index])
assert state["w"].is_deleted()
assert mesh.shardings({"w": ToySpec((4,), ("embed",))})["w"].shard_shape((4,)) == (2,)
"""


def test_each_process_gives_its_part() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    processes = [
        subprocess.Popen([sys.executable, "-c", _PROCESS, port, str(rank)], env=env, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for process in processes:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
