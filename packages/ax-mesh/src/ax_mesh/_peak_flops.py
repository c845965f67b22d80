"""What a device could do at best, the denominator of model FLOPs utilisation (MFU).

Accelerators come from a table of their makers' dense peaks, so that an MFU can be compared with published ones. What the
table lacks, a CPU first of all, is measured: the best of some large matrix products.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

_SECONDS = 0.3
_SIZE = 1024


@dataclass(frozen=True)
class PeakFlops:
    """Floating-point operations per second of one device, as JAX counts devices; and whether they were measured."""

    per_second: float
    measured: bool


@dataclass(frozen=True)
class _Row:
    """A chip's dense peak in bf16, by the pattern of its ``device_kind``."""

    pattern: str
    teraflops: float
    devices_per_chip: int = 1


_TABLE = (
    _Row(r"NVIDIA H[12]00|NVIDIA GH200", 989.0),
    _Row(r"NVIDIA G?B200", 2250.0),
    _Row(r"NVIDIA A100", 312.0),
    _Row(r"TPU v5 ?lite|TPU v5e", 197.0),
    _Row(r"TPU v5p?$", 459.0),
    _Row(r"TPU v6 ?lite|TPU v6e", 918.0),
    _Row(r"TPU ?v?7x?", 2307.0, devices_per_chip=2),
)


def peak_flops(device: jax.Device, /) -> PeakFlops:
    """The peak of ``device``: in bf16 from the table whatever a model computes in, else in float32, measured in 0.3 s.

    Host devices made by ``--xla_force_host_platform_device_count`` share the same cores: all are measured at work.
    """
    for row in _TABLE:
        if re.search(row.pattern, device.device_kind, re.IGNORECASE):
            return PeakFlops(row.teraflops * 1e12 / row.devices_per_chip, measured=False)
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
