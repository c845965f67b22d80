"""What to tell a compiler so that communication goes on while there is something to compute.

Options are data, by accelerator: XLA's compilers differ in what they know and in what they recommend, and refuse by name
what they don't, so a test can hold every entry to the real compiler. CPUs and Trainium have none. They are put into a mesh's config by mesh rules:

    "h100-*": setting(Mesh, compiler_options=compiler_options("h100"))
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from ax_config import NoMatchError, nearest

from ._accelerators import ACCELERATORS, Platform

CompilerOptions: TypeAlias = Mapping[str, str | bool]
"""Options of XLA by name; numbers are written as text."""

_SMALL = str(8 * 2**20)

_TPU: CompilerOptions = {
    "xla_tpu_enable_latency_hiding_scheduler": True,
    # A product goes on in the same fusion as a collective.
    "xla_tpu_enable_async_collective_fusion": True,
    "xla_tpu_overlap_compute_collective_tc": True,
    "xla_enable_async_all_gather": "true",
    "xla_enable_async_collective_permute": "true",
    # Gradients' sums over the data axis wait for the products that make the next ones.
    "xla_tpu_enable_data_parallel_all_reduce_opt": True,
    "xla_tpu_data_parallel_opt_different_sized_ops": True,
}

_TPU_V5E: CompilerOptions = {
    **_TPU,
    # A gather goes on through several products. The compiler refuses this for other TPUs.
    "xla_tpu_enable_async_collective_fusion_fuse_all_gather": True,
    "xla_tpu_enable_async_collective_fusion_multiple_steps": True,
}

_GPU: CompilerOptions = {
    "xla_gpu_enable_latency_hiding_scheduler": True,
    # Two trips of a loop at once: one layer's gathers stand beside another's products.
    "xla_gpu_enable_while_loop_double_buffering": True,
    "xla_gpu_enable_highest_priority_async_stream": True,
    # Small parameters go in one message; a large one by itself, so that its gather can stand beside another's product.
    "xla_gpu_all_gather_combine_threshold_bytes": _SMALL,
    "xla_gpu_reduce_scatter_combine_threshold_bytes": _SMALL,
    "xla_gpu_all_reduce_combine_threshold_bytes": _SMALL,
}

_BY_PLATFORM: Mapping[Platform, CompilerOptions] = {"tpu": _TPU, "cuda": _GPU, "neuron": {}, "cpu": {}}

COMPILER_OPTIONS: Mapping[str, CompilerOptions] = MappingProxyType(
    {row.name: _BY_PLATFORM[row.platform] for row in ACCELERATORS} | {"v5e": _TPU_V5E}
)
"""By an accelerator's name in the table; for models whose layers are scanned and whose parameters are split."""


def compiler_options(kind: str, /) -> dict[str, str | bool]:
    """Those for an accelerator of the table, by its name there: ``compiler_options("v5e")``.

    Raises NoMatchError for another name, with the nearest ones.
    """
    if kind not in COMPILER_OPTIONS:
        raise NoMatchError(f"there is no accelerator {kind!r}; {nearest(kind, COMPILER_OPTIONS)}")
    return dict(COMPILER_OPTIONS[kind])
