"""The accelerators there are: how JAX calls their devices, how we call them, and their dense peaks in bf16.

Peaks are the makers' published figures. A group of devices is named by kind and number, as JAX counts devices:
``h100-8``, ``v5e-256``, ``cpu-1``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import jax


class Accelerator(NamedTuple):
    """A kind of chip."""

    name: str
    pattern: str
    """Matches the ``device_kind`` of its devices."""
    teraflops: float
    """Of a chip, dense, in bf16."""
    devices_per_chip: int = 1


ACCELERATORS = (
    Accelerator("a100", r"NVIDIA A100", 312.0),
    Accelerator("h100", r"NVIDIA H100|NVIDIA GH200", 989.0),
    Accelerator("h200", r"NVIDIA H200", 989.0),
    Accelerator("b200", r"NVIDIA G?B200", 2250.0),
    Accelerator("v4", r"TPU v4$", 275.0),
    Accelerator("v5e", r"TPU v5 ?lite|TPU v5e", 197.0),
    Accelerator("v5p", r"TPU v5p?$", 459.0),
    Accelerator("v6e", r"TPU v6 ?lite|TPU v6e", 918.0),
    Accelerator("tpu7x", r"TPU ?v?7x?", 2307.0, devices_per_chip=2),
)


def find_accelerator(device: jax.Device, /) -> Accelerator | None:
    """The kind of ``device``, if it is in the table."""
    return next((row for row in ACCELERATORS if re.search(row.pattern, device.device_kind, re.IGNORECASE)), None)


def accelerator_name(devices: Sequence[jax.Device], /) -> str:
    """What these devices are called, kind and number: ``"h100-8"``.

    A kind that isn't in the table goes by its platform: ``"cpu-1"``.
    """
    found = find_accelerator(devices[0])
    return f"{found.name if found else devices[0].platform}-{len(devices)}"
