"""The accelerators there are, as a table of published figures; and the names by which groups of them go.

A group's name is ``kind-number``, or ``kind-numberxslices`` for several TPU slices: ``h100-256``, ``v5e-256x4``. There is
one rule for the number: it counts what the maker's cloud counts in the names that it sells. For TPUs those are
TensorCores, which v4, v5p and tpu7x have two of in a chip, v5e and v6e one: ``v5p-512`` is 256 chips and ``tpu7x-128`` is
64, ``v5e-256`` is 256. GPUs, Trainium chips and host devices count themselves. How many devices JAX sees is another
number (a v4 or v5p chip is one device, a tpu7x chip two, a Trainium2 chip four), which ``AcceleratorGroup`` tells.

Bandwidths are of a chip. ``link`` is between chips of one slice or NVLink domain, in and out together, as makers print it;
``network`` is a chip's share of its host's network interfaces, one way. Peaks are dense.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import jax
from ax_config import NoMatchError, nearest

Platform: TypeAlias = Literal["tpu", "cuda", "neuron", "cpu"]
Wiring: TypeAlias = Literal["2D torus", "3D torus", "switch", "memory"]


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A kind of chip. None where its maker publishes no such figure."""

    name: str
    platform: Platform
    pattern: str
    """Matches the ``device_kind`` of its devices."""
    counted_per_chip: int = 1
    """How many of what the number in a group's name counts are in a chip."""
    devices_per_chip: int = 1
    chips_per_host: int
    wiring: Wiring
    chips_wired: int
    """The largest number of chips that ``wiring`` joins: a slice, an NVLink domain."""
    hbm_gib: float | None
    bf16_teraflops: float | None
    fp8_teraflops: float | None
    int8_teraops: float | None
    hbm_gb_per_second: float | None
    link_gb_per_second: float | None
    network_gb_per_second: float | None
    instances: tuple[str, ...]
    """Cloud machines that hold it: AWS's and Google's names."""
    sources: tuple[str, ...]
    """Titles of its maker's pages that the figures are from."""

    @property
    def one_host(self) -> str:
        """The name of the group that one host holds."""
        return f"{self.name}-{self.chips_per_host * self.counted_per_chip}"


ACCELERATORS = (
    Accelerator(
        name="cpu",
        platform="cpu",
        pattern=r"^cpu$",
        chips_per_host=1,
        wiring="memory",
        chips_wired=1,
        hbm_gib=None,
        bf16_teraflops=None,
        fp8_teraflops=None,
        int8_teraops=None,
        hbm_gb_per_second=None,
        link_gb_per_second=None,
        network_gb_per_second=None,
        instances=(),
        sources=(),
    ),
    Accelerator(
        name="a100",
        platform="cuda",
        pattern=r"NVIDIA A100",
        chips_per_host=8,
        wiring="switch",
        chips_wired=8,
        hbm_gib=79.1,
        bf16_teraflops=312.0,
        fp8_teraflops=None,
        int8_teraops=624.0,
        hbm_gb_per_second=2_039.0,
        link_gb_per_second=600.0,
        network_gb_per_second=6.25,
        instances=("p4de.24xlarge", "a2-ultragpu-8g"),
        sources=("NVIDIA A100 Tensor Core GPU datasheet (80GB SXM)", "Amazon EC2 P4 Instances"),
    ),
    Accelerator(
        name="h100",
        platform="cuda",
        pattern=r"NVIDIA H100|NVIDIA GH200",
        chips_per_host=8,
        wiring="switch",
        chips_wired=8,
        hbm_gib=79.1,
        bf16_teraflops=989.0,
        fp8_teraflops=1_979.0,
        int8_teraops=1_979.0,
        hbm_gb_per_second=3_350.0,
        link_gb_per_second=900.0,
        network_gb_per_second=50.0,
        instances=("p5.48xlarge", "a3-highgpu-8g", "a3-megagpu-8g"),
        sources=("NVIDIA H100 Tensor Core GPU datasheet (SXM)", "Amazon EC2 P5 Instances"),
    ),
    Accelerator(
        name="h200",
        platform="cuda",
        pattern=r"NVIDIA H200",
        chips_per_host=8,
        wiring="switch",
        chips_wired=8,
        hbm_gib=139.8,
        bf16_teraflops=989.0,
        fp8_teraflops=1_979.0,
        int8_teraops=1_979.0,
        hbm_gb_per_second=4_800.0,
        link_gb_per_second=900.0,
        network_gb_per_second=50.0,
        instances=("p5e.48xlarge", "p5en.48xlarge", "a3-ultragpu-8g"),
        sources=("NVIDIA H200 Tensor Core GPU datasheet (SXM)", "Amazon EC2 P5 Instances"),
    ),
    Accelerator(
        name="b200",
        platform="cuda",
        pattern=r"NVIDIA B200",
        chips_per_host=8,
        wiring="switch",
        chips_wired=8,
        hbm_gib=178.3,
        bf16_teraflops=2_250.0,
        fp8_teraflops=4_500.0,
        int8_teraops=4_500.0,
        hbm_gb_per_second=8_000.0,
        link_gb_per_second=1_800.0,
        network_gb_per_second=50.0,
        instances=("p6-b200.48xlarge", "a4-highgpu-8g"),
        sources=("NVIDIA DGX B200 datasheet", "Amazon EC2 P6 Instances"),
    ),
    Accelerator(
        name="gb200",
        platform="cuda",
        pattern=r"NVIDIA GB200",
        chips_per_host=4,
        wiring="switch",
        chips_wired=72,
        hbm_gib=184.0,
        bf16_teraflops=2_500.0,
        fp8_teraflops=5_000.0,
        int8_teraops=5_000.0,
        hbm_gb_per_second=8_000.0,
        link_gb_per_second=1_800.0,
        network_gb_per_second=50.0,
        instances=("p6e-gb200.36xlarge", "a4x-highgpu-4g"),
        sources=("NVIDIA GB200 NVL72", "Amazon EC2 P6 Instances"),
    ),
    Accelerator(
        name="v4",
        platform="tpu",
        pattern=r"TPU v4$",
        counted_per_chip=2,
        chips_per_host=4,
        wiring="3D torus",
        chips_wired=4_096,
        hbm_gib=32.0,
        bf16_teraflops=275.0,
        fp8_teraflops=None,
        int8_teraops=275.0,
        hbm_gb_per_second=1_200.0,
        link_gb_per_second=600.0,
        network_gb_per_second=3.125,
        instances=("ct4p-hightpu-4t",),
        sources=("Cloud TPU: TPU v4",),
    ),
    Accelerator(
        name="v5e",
        platform="tpu",
        pattern=r"TPU v5 ?lite|TPU v5e",
        chips_per_host=8,
        wiring="2D torus",
        chips_wired=256,
        hbm_gib=16.0,
        bf16_teraflops=197.0,
        fp8_teraflops=None,
        int8_teraops=393.0,
        hbm_gb_per_second=819.0,
        link_gb_per_second=400.0,
        network_gb_per_second=3.125,
        instances=("ct5lp-hightpu-1t", "ct5lp-hightpu-4t", "ct5lp-hightpu-8t"),
        sources=("Cloud TPU: TPU v5e",),
    ),
    Accelerator(
        name="v5p",
        platform="tpu",
        pattern=r"TPU v5p?$",
        counted_per_chip=2,
        chips_per_host=4,
        wiring="3D torus",
        chips_wired=6_144,
        hbm_gib=95.0,
        bf16_teraflops=459.0,
        fp8_teraflops=459.0,
        int8_teraops=918.0,
        hbm_gb_per_second=2_765.0,
        link_gb_per_second=1_200.0,
        network_gb_per_second=6.25,
        instances=("ct5p-hightpu-4t",),
        sources=("Cloud TPU: TPU v5p", "Cloud TPU: TPU7x (Ironwood)"),
    ),
    Accelerator(
        name="v6e",
        platform="tpu",
        pattern=r"TPU v6 ?lite|TPU v6e",
        chips_per_host=8,
        wiring="2D torus",
        chips_wired=256,
        hbm_gib=32.0,
        bf16_teraflops=918.0,
        fp8_teraflops=918.0,
        int8_teraops=1_836.0,
        hbm_gb_per_second=1_638.0,
        link_gb_per_second=800.0,
        network_gb_per_second=12.5,
        instances=("ct6e-standard-1t", "ct6e-standard-4t", "ct6e-standard-8t"),
        sources=("Cloud TPU: TPU v6e", "Cloud TPU: TPU7x (Ironwood)"),
    ),
    Accelerator(
        name="tpu7x",
        platform="tpu",
        pattern=r"TPU ?v?7x?",
        counted_per_chip=2,
        devices_per_chip=2,
        chips_per_host=4,
        wiring="3D torus",
        chips_wired=9_216,
        hbm_gib=192.0,
        bf16_teraflops=2_307.0,
        fp8_teraflops=4_614.0,
        int8_teraops=None,
        hbm_gb_per_second=7_380.0,
        link_gb_per_second=1_200.0,
        network_gb_per_second=12.5,
        instances=("tpu7x-standard-4t",),
        sources=("Cloud TPU: TPU7x (Ironwood)",),
    ),
    Accelerator(
        name="trn2",
        platform="neuron",
        pattern=r"trn2|trainium ?2|NC_v3",
        devices_per_chip=4,
        chips_per_host=16,
        wiring="2D torus",
        chips_wired=16,
        hbm_gib=96.0,
        bf16_teraflops=667.0,
        fp8_teraflops=1_299.0,
        int8_teraops=None,
        hbm_gb_per_second=2_900.0,
        link_gb_per_second=1_280.0,
        network_gb_per_second=25.0,
        instances=("trn2.48xlarge", "trn2u.48xlarge"),
        sources=("AWS Neuron: Trainium2 Architecture", "Amazon EC2 Trn2 Instances and UltraServers"),
    ),
)


@dataclass(frozen=True)
class AcceleratorGroup:
    """So many chips of a kind, in one slice or several alike."""

    accelerator: Accelerator
    chips_per_slice: int
    num_slices: int = 1

    @property
    def name(self) -> str:
        """What it is called: ``"v5e-256x4"``."""
        number = self.chips_per_slice * self.accelerator.counted_per_chip
        return f"{self.accelerator.name}-{number}" + (f"x{self.num_slices}" if self.num_slices > 1 else "")

    @property
    def num_chips(self) -> int:
        """Of all slices."""
        return self.chips_per_slice * self.num_slices

    @property
    def num_devices(self) -> int:
        """As JAX counts them, of all slices."""
        return self.num_chips * self.accelerator.devices_per_chip


def accelerator_group(name: str, /) -> AcceleratorGroup:
    """What ``name`` stands for: ``accelerator_group("v5p-512").num_chips == 256``.

    Raises:
        NoMatchError: No such kind, with the nearest ones.
        ValueError: The name has another form, or there is no such number of them.
    """
    parts = re.fullmatch(r"([a-z0-9]+)-([1-9][0-9]*)(?:x([1-9][0-9]*))?", name)
    if parts is None:
        raise ValueError(
            f"{name!r} is no accelerator: kind and number are wanted, such as h100-64, v5p-512 or v5e-256x4"
        )
    kind, number, slices = parts[1], int(parts[2]), int(parts[3] or 1)
    row = next((row for row in ACCELERATORS if row.name == kind), None)
    if row is None:
        raise NoMatchError(f"there is no accelerator {kind!r}; {nearest(kind, [row.name for row in ACCELERATORS])}")
    if number % row.counted_per_chip:
        raise ValueError(f"{name}: {kind} counts TensorCores, two in a chip: {number} is odd")
    if slices > 1 and row.platform != "tpu":
        raise ValueError(
            f"{name}: only TPUs have slices; {number * slices} of these are called {kind}-{number * slices}"
        )
    chips = number // row.counted_per_chip
    if row.platform == "tpu" and chips > row.chips_wired:
        raise ValueError(f"{name}: a slice of {kind} has at most {row.chips_wired} chips; {chips} are several slices")
    return AcceleratorGroup(row, chips, slices)


def find_accelerator(device: jax.Device, /) -> Accelerator | None:
    """The kind of ``device``, if it is in the table."""
    return next((row for row in ACCELERATORS if re.search(row.pattern, device.device_kind, re.IGNORECASE)), None)


def accelerator_name(devices: Sequence[jax.Device], /) -> str:
    """What these devices are called: ``"h100-8"``, ``"v5p-8"`` for four chips, ``"v5e-256x4"`` for four slices.

    A kind that isn't in the table goes by its platform and the number of devices: ``"rocm-8"``.
    """
    row = find_accelerator(devices[0])
    if row is None:
        return f"{devices[0].platform}-{len(devices)}"
    num_slices = len({getattr(device, "slice_index", None) for device in devices}) if row.platform == "tpu" else 1
    chips = -(-len(devices) // (row.devices_per_chip * num_slices))
    return AcceleratorGroup(row, chips, num_slices).name
