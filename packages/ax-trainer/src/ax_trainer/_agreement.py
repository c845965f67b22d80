"""What one process wishes, all do, at the same step.

A signal reaches one process, and clocks differ: were each to stop by itself, the others would wait for it in the next collective for
ever. So the processes vote: each puts a number on its devices, and the greatest of all is what is done. The vote is a tiny program
that the devices run between steps; its outcome is read two steps later, when it has long been there, so nobody waits for it.
"""

from __future__ import annotations

from collections import deque
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

_LAG = 2


class Agreement:
    """Votes among the processes of a sharding's devices. One process agrees with itself at once."""

    def __init__(self, sharding: Sharding, /) -> None:
        devices = sorted(cast("set[jax.Device]", sharding.device_set), key=lambda device: device.id)
        self._alone = len({device.process_index for device in devices}) == 1
        mesh = Mesh(np.array(devices), ("voter",))
        self._voters = NamedSharding(mesh, PartitionSpec("voter"))
        self._greatest = jax.jit(jnp.max, out_shardings=NamedSharding(mesh, PartitionSpec()))
        self._votes: deque[jax.Array] = deque()

    def __call__(self, wish: int, /) -> int:
        """The greatest wish, 0 or more, that any process had two calls ago; all call it equally often and get the same."""
        if self._alone:
            return wish
        votes = jax.make_array_from_callback(
            self._voters.mesh.devices.shape, self._voters, lambda _: np.full(1, wish, np.int32)
        )
        self._votes.append(cast("jax.Array", self._greatest(votes)))
        return int(self._votes.popleft()) if len(self._votes) > _LAG else 0
