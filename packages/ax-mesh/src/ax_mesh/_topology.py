"""Devices that nobody here has, described well enough to compile for.

``topology("v5p-512")`` gives the 256 devices of a slice as JAX would show them there, with their places in the torus; a
mesh over them and ``jax.jit(f).lower(…).compile()`` run the real compiler for these chips. TPUs need libtpu, NVIDIA GPUs
the CUDA plugin and its compiler; both are extras of ax-recipes, and neither needs a chip. Trainium's compiler isn't to be
had from a public index: for it a program can be lowered only, over an abstract mesh.
"""

from __future__ import annotations

import itertools
import math

import jax
from jax.experimental import topologies

from ._accelerators import AcceleratorGroup, accelerator_group
from ._gpu_targets import gpu_target


class TopologyError(RuntimeError):
    """Devices that can't be described here, and what is missing."""


def topology(name: str, /) -> tuple[jax.Device, ...]:
    """The devices of an accelerator group (``"v6e-256x4"``, ``"h100-64"``), described; CPU devices are this process's own.

    Off a TPU machine set ``TPU_SKIP_MDS_QUERY=1`` and ``ALLOW_MULTIPLE_LIBTPU_LOAD=1``, off a GPU machine
    ``JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1``, and ``JAX_PLATFORMS=cpu`` on both, before JAX is first used: else the vendors'
    libraries look for hardware, or lock what isn't there.

    Raises:
        NoMatchError: No such kind.
        ValueError: No such number of them.
        TopologyError: What describes them isn't installed, or there is nothing that could.
    """
    group = accelerator_group(name)
    match group.accelerator.platform:
        case "tpu":
            return _tpu(group)
        case "cuda":
            return _gpu(group)
        case "cpu":
            return _cpu(group)
        case "neuron":
            raise TopologyError(
                f"{name}: there is no compiler for Trainium to describe its devices to. Lower for it instead, over a "
                f'jax.sharding.AbstractMesh of {group.num_devices}: jax.jit(f).trace(…).lower(lowering_platforms=("neuron",))'
            )


def slice_shape(group: AcceleratorGroup, /) -> tuple[int, ...]:
    """The torus of one TPU slice, as the cloud lays it out: v5p-512 is 4 × 8 × 8 chips.

    Raises ValueError when no slice has that many chips.
    """
    chips = group.chips_per_slice
    if group.accelerator.wiring == "2D torus":
        if chips & (chips - 1) == 0:
            short = 1 << (chips.bit_length() - 1) // 2
            return short, chips // short
        legal = "1, 2, 4, 8, … 256"
    else:
        below_a_cube = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 2, 2), 16: (2, 2, 4), 32: (2, 4, 4)}
        if chips in below_a_cube:
            return below_a_cube[chips]
        if chips % 64 == 0:
            return tuple(4 * size for size in _most_cubic(chips // 64))
        legal = "1, 4, 8, 16, 32, or a multiple of 64 (cubes of 4 × 4 × 4)"
    raise ValueError(f"{group.name}: no slice of {group.accelerator.name} has {chips} chips, but {legal}")


def _most_cubic(volume: int) -> tuple[int, int, int]:
    """The box of this volume with the smallest surface, sides in rising order."""
    sides = [side for side in range(1, volume + 1) if volume % side == 0]
    boxes = (
        (a, b, volume // (a * b))
        for a, b in itertools.combinations_with_replacement(sides, 2)
        if volume % (a * b) == 0 and b <= volume // (a * b)
    )
    return min(boxes, key=lambda box: box[0] * box[1] + box[1] * box[2] + box[0] * box[2])


def _tpu(group: AcceleratorGroup) -> tuple[jax.Device, ...]:
    accelerator = group.accelerator
    shape = "x".join(map(str, slice_shape(group)))
    # Programs for v4 see the two cores of a chip as one device, which the description has to be told.
    fused = {"chip_config_name": "megacore"} if accelerator.name == "v4" else {}
    slices = {"num_slices": group.num_slices} if group.num_slices > 1 else {}
    try:
        described = topologies.get_topology_desc(f"{accelerator.name}:{shape}", "tpu", **fused, **slices)
    except RuntimeError as error:
        if "not installed" not in str(error):
            raise
        raise TopologyError(f"{group.name}: describing TPUs needs libtpu: pip install 'ax-recipes[tpu]'") from error
    return tuple(described.devices)


def _gpu(group: AcceleratorGroup) -> tuple[jax.Device, ...]:
    accelerator = group.accelerator
    assert accelerator.hbm_gib is not None
    assert accelerator.hbm_gb_per_second is not None
    per_host = math.gcd(group.num_chips, accelerator.chips_per_host)
    if group.num_chips > per_host != accelerator.chips_per_host:
        raise ValueError(f"{group.name}: several hosts of {accelerator.chips_per_host} each make no {group.num_chips}")
    target = gpu_target(accelerator.name, hbm_gib=accelerator.hbm_gib, hbm_gb_per_second=accelerator.hbm_gb_per_second)
    try:
        described = topologies.get_topology_desc(
            "", "cuda", topology=f"1x{group.num_chips // per_host}x{per_host}", target_config=target
        )
    except NotImplementedError as error:
        raise TopologyError(
            f"{group.name}: describing NVIDIA GPUs needs JAX's CUDA plugin and nvcc, on Python 3.12 or newer: "
            "pip install 'ax-recipes[cuda]'"
        ) from error
    return tuple(described.devices)


def _cpu(group: AcceleratorGroup) -> tuple[jax.Device, ...]:
    here = jax.devices("cpu")
    if len(here) < group.num_devices:
        raise TopologyError(
            f"{group.name}: this process has {len(here)} CPU devices; before JAX is first used, "
            f'jax.config.update("jax_num_cpu_devices", {group.num_devices}) makes as many'
        )
    return tuple(here[: group.num_devices])
