"""Peaks: from the table for accelerators, measured for the rest."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import cast

import jax
import pytest
from ax_mesh import PeakFlops, peak_flops


@dataclass(frozen=True)
class Accelerator:
    """As much of a device as the table looks at."""

    device_kind: str
    platform: str = "tpu"


@pytest.mark.parametrize(
    ("kind", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989.0),
        ("NVIDIA H200", 989.0),
        ("NVIDIA B200", 2250.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("TPU v5 lite", 197.0),
        ("TPU v5", 459.0),
        ("TPU v6 lite", 918.0),
        ("TPU7x", 2307.0 / 2),
    ],
)
def test_accelerators_are_looked_up(kind: str, teraflops: float) -> None:
    device = cast("jax.Device", Accelerator(kind))
    assert peak_flops(device) == PeakFlops(teraflops * 1e12, measured=False)


def test_a_cpu_is_measured_in_no_time() -> None:
    peak_flops(jax.devices()[0])
    start = time.perf_counter()
    peak = peak_flops(jax.devices()[0])
    assert peak.measured
    assert 1e8 < peak.per_second < 1e14
    assert time.perf_counter() - start < 5
