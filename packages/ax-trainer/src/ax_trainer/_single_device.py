"""The partitioner of one device."""

from __future__ import annotations

import contextlib

import jax

from .protocols import Batch, HostBatch


class SingleDevice:
    """Puts everything on one device, the first unless told."""

    def __init__(self, device: jax.Device | None = None) -> None:
        self._sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0] if device is None else device)

    def shardings(self, specs: object, /) -> object:
        """The device, for each spec."""
        return jax.tree.map(lambda _: self._sharding, specs)

    def replicated(self) -> jax.sharding.Sharding:
        """The device."""
        return self._sharding

    def put(self, batch: HostBatch, /) -> Batch:
        """The batch on the device."""
        return {name: jax.device_put(array, self._sharding) for name, array in batch.items()}

    def activate(self) -> contextlib.AbstractContextManager[None]:
        """Nothing to do for one device."""
        return contextlib.nullcontext()
