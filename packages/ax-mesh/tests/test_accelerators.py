"""The table of accelerators, and the names of groups of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import jax
import pytest
from ax_config import NoMatchError
from ax_mesh import ACCELERATORS, accelerator_group, accelerator_name


@dataclass(frozen=True)
class Device:
    """As much of a device as its name comes from."""

    device_kind: str
    platform: str = "tpu"
    slice_index: int | None = None


def devices(number: int, kind: str, *, num_slices: int = 1, platform: str = "tpu") -> list[jax.Device]:
    each = number // num_slices
    return [cast("jax.Device", Device(kind, platform, index // each)) for index in range(number)]


NAMES = [
    # name, chips, devices, as JAX reports the kind, slices
    ("v4-8", 4, 4, "TPU v4", 1),
    ("v5p-512", 256, 256, "TPU v5", 1),
    ("v5e-256", 256, 256, "TPU v5 lite", 1),
    ("v6e-256x4", 1024, 1024, "TPU v6 lite", 4),
    ("tpu7x-128", 64, 128, "TPU7x", 1),
    ("tpu7x-8x2", 8, 16, "TPU7x", 2),
    ("h100-64", 64, 64, "NVIDIA H100 80GB HBM3", 1),
    ("b200-8", 8, 8, "NVIDIA B200", 1),
    ("gb200-72", 72, 72, "NVIDIA GB200", 1),
    ("a100-8", 8, 8, "NVIDIA A100-SXM4-80GB", 1),
    ("trn2-16", 16, 64, "trn2", 1),
]


@pytest.mark.parametrize(("name", "chips", "num_devices", "kind", "num_slices"), NAMES)
def test_names_count_what_clouds_count(name: str, chips: int, num_devices: int, kind: str, num_slices: int) -> None:
    group = accelerator_group(name)
    assert (group.num_chips, group.num_devices, group.num_slices) == (chips, num_devices, num_slices)
    assert group.name == name
    assert accelerator_name(devices(num_devices, kind, num_slices=num_slices)) == name


def test_hosts_and_strange_devices_have_names() -> None:
    assert accelerator_name(jax.devices()[:1]) == "cpu-1"
    assert accelerator_name(devices(8, "AMD Instinct MI300X", platform="rocm")) == "rocm-8"
    assert accelerator_name(devices(1, "TPU7x")) == "tpu7x-2", "a part of a chip counts as the chip"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("h10-8", NoMatchError, "there is no accelerator 'h10'; did you mean .*h100"),
        ("h100", ValueError, "kind and number are wanted"),
        ("h100-0", ValueError, "kind and number are wanted"),
        ("v5p-7", ValueError, "counts TensorCores, two in a chip: 7 is odd"),
        ("h100-8x4", ValueError, "only TPUs have slices; 32 of these are called h100-32"),
        ("v5e-512", ValueError, "a slice of v5e has at most 256 chips"),
    ],
)
def test_errors_say_what_is_legal(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        accelerator_group(name)


def test_the_table_holds_together() -> None:
    assert len({row.name for row in ACCELERATORS}) == len(ACCELERATORS)
    for row in ACCELERATORS:
        assert accelerator_group(row.one_host).num_chips == row.chips_per_host
        assert row.chips_wired % row.chips_per_host == 0
        assert (row.platform == "cpu") == (row.bf16_teraflops is None) == (not row.sources)
        for faster in (row.fp8_teraflops, row.int8_teraops):
            assert faster is None or (row.bf16_teraflops is not None and faster >= row.bf16_teraflops)
