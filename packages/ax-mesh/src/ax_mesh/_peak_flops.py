"""What a device could do at best, the denominator of model FLOPs utilisation (MFU).

Accelerators come from a table of their makers' dense peaks, so that an MFU can be compared with published ones. What the
table lacks, a CPU first of all, is measured: the best of some large matrix products.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ._accelerators import find_accelerator

_SECONDS = 0.3
_SIZE = 1024


@dataclass(frozen=True)
class PeakFlops:
    """Floating-point operations per second of one device, as JAX counts devices; and whether they were measured."""

    per_second: float
    measured: bool


def peak_flops(device: jax.Device, /) -> PeakFlops:
    """The peak of ``device``: in bf16 from the table whatever a model computes in, else in float32, measured in 0.3 s.

    Host devices made by ``--xla_force_host_platform_device_count`` share the same cores: all are measured at work.
    """
    row = find_accelerator(device)
    if row is not None and row.bf16_teraflops is not None:
        return PeakFlops(row.bf16_teraflops * 1e12 / row.devices_per_chip, measured=False)
    together = jax.local_devices(backend="cpu") if device.platform == "cpu" else [device]
    return PeakFlops(_measure(together), measured=True)


def _measure(devices: Sequence[jax.Device]) -> float:
    """The rate of one of ``devices`` while all multiply matrices, the best of several tries."""
    matrices = [jax.device_put(np.ones((_SIZE, _SIZE), np.float32), device) for device in devices]
    product = jax.jit(jnp.matmul)

    def seconds() -> float:
        start = time.perf_counter()
        jax.block_until_ready([product(matrix, matrix) for matrix in matrices])
        return time.perf_counter() - start

    seconds()  # Compiles.
    end = time.perf_counter() + _SECONDS
    best = seconds()
    while time.perf_counter() < end:
        best = min(best, seconds())
    return float(2 * _SIZE**3 / best)
