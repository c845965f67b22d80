"""A batch of which every process has some rows, as one array.

Where the rows that a process has are those that its own devices are to hold, nothing is sent. Where processes share rows, as
when an axis of the mesh along which the batch isn't split runs through several of them, each puts its rows on its own devices
first, and the devices exchange them.
"""

from __future__ import annotations

import functools

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding


def from_processes(rows: np.ndarray, sharding: Sharding, /) -> jax.Array:
    """The rows of all processes along the first dim, in any order, laid out as ``sharding`` says. Each gives as many."""
    num_processes = jax.process_count()
    shape = (rows.shape[0] * num_processes, *rows.shape[1:])
    placed: jax.Array
    if num_processes == 1:
        placed = jax.device_put(rows, sharding)
    elif _rows_have_one_owner(sharding, shape[0], num_processes):
        placed = jax.make_array_from_process_local_data(sharding, rows, shape)
    else:
        devices: list[jax.Device] = sorted(sharding.device_set, key=_process_and_id)
        by_process = jax.sharding.Mesh(np.array(devices).reshape(num_processes, -1), ("process", "device"))
        given = NamedSharding(by_process, PartitionSpec("process"))
        placed = jax.device_put(jax.make_array_from_process_local_data(given, rows, shape), sharding)
    return placed


def _process_and_id(device: jax.Device) -> tuple[int, int]:
    return device.process_index, device.id


@functools.lru_cache
def _rows_have_one_owner(sharding: Sharding, num_rows: int, num_processes: int) -> bool:
    """Whether each process's devices hold an equal number of rows that no other's hold."""
    held: dict[int, set[tuple[int, int]]] = {}
    device: jax.Device
    for device, (rows, *_) in sharding.devices_indices_map((num_rows,)).items():
        start, stop, _ = rows.indices(num_rows)
        held.setdefault(device.process_index, set()).add((start, stop))
    counts = [sum(stop - start for start, stop in parts) for parts in held.values()]
    return counts == [num_rows // num_processes] * num_processes
