"""What XLA has to know of a GPU to compile for it where there is none: its ``GpuTargetConfigProto`` as text.

The numbers are from the maker's white papers and from the compute capabilities' table in the CUDA C++ Programming Guide.
"""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024
_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class _Gpu:
    description: str
    """As the driver calls it; becomes JAX's ``device_kind``."""
    capability: tuple[int, int]
    num_sms: int
    fp32_lanes_per_sm: int
    shared_kib_per_sm: int
    """Of which one KiB is the system's, for each block."""
    l2_mib: int
    clock_ghz: float


_GPUS = {
    "a100": _Gpu(
        description="NVIDIA A100-SXM4-80GB",
        capability=(8, 0),
        num_sms=108,
        fp32_lanes_per_sm=64,
        shared_kib_per_sm=164,
        l2_mib=40,
        clock_ghz=1.41,
    ),
    "h100": _Gpu(
        description="NVIDIA H100 80GB HBM3",
        capability=(9, 0),
        num_sms=132,
        fp32_lanes_per_sm=128,
        shared_kib_per_sm=228,
        l2_mib=50,
        clock_ghz=1.98,
    ),
    "h200": _Gpu(
        description="NVIDIA H200",
        capability=(9, 0),
        num_sms=132,
        fp32_lanes_per_sm=128,
        shared_kib_per_sm=228,
        l2_mib=50,
        clock_ghz=1.98,
    ),
    "b200": _Gpu(
        description="NVIDIA B200",
        capability=(10, 0),
        num_sms=148,
        fp32_lanes_per_sm=128,
        shared_kib_per_sm=228,
        l2_mib=126,
        clock_ghz=1.965,
    ),
    "gb200": _Gpu(
        description="NVIDIA GB200",
        capability=(10, 0),
        num_sms=152,
        fp32_lanes_per_sm=128,
        shared_kib_per_sm=228,
        l2_mib=126,
        clock_ghz=2.062,
    ),
}


def gpu_target(name: str, /, *, hbm_gib: float, hbm_gb_per_second: float) -> str:
    """The text for a GPU of the accelerator table."""
    gpu = _GPUS[name]
    major, minor = gpu.capability
    return f"""\
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {gpu.num_sms}
  fpus_per_core: {gpu.fp32_lanes_per_sm}
  clock_rate_ghz: {gpu.clock_ghz}
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_block: {48 * _KIB}
  shared_memory_per_block_optin: {(gpu.shared_kib_per_sm - 1) * _KIB}
  shared_memory_per_core: {gpu.shared_kib_per_sm * _KIB}
  l2_cache_size: {gpu.l2_mib * _KIB * _KIB}
  memory_bandwidth: {round(hbm_gb_per_second * 1e9)}
  device_memory_size: {round(hbm_gib * _GIB)}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{gpu.description}"
"""
