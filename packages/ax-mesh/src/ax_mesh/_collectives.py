"""What a program communicates: every collective, over which mesh axes, how many bytes, how often.

Read from the program as the partitioner leaves it, before a backend's own passes: afterwards a TPU's program may say
all-reduce where what is on the links is a reduce-scatter, and what is in one instruction may be in five fusions.

Bytes on the links are those that a device sends with the usual ring algorithms (Thakur et al., "Optimization of
Collective Communication Operations in MPICH", 2005): with n devices, (n − 1) / n of the whole array for an all-gather, a
reduce-scatter or an all-to-all, twice that for an all-reduce, the array itself for a permute.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from ._hlo import Frame, Instruction, Module, Shape

CollectiveKind: TypeAlias = Literal[
    "all-gather", "reduce-scatter", "all-reduce", "all-to-all", "ragged-all-to-all", "collective-permute"
]
KINDS: frozenset[str] = frozenset(get_args(CollectiveKind))

_WRITTEN = re.compile(
    r"(?:^|/)(?:psum|pmax|pmin|pbroadcast|ppermute|all_gather|all_to_all|ragged_all_to_all|reduce_scatter)"
)
"""How the names of JAX's own collectives begin, for those that a program says itself."""

_NAMED = re.compile(
    r"replica_groups=mesh\[(?P<mesh>[^\]]*)\](?:, device_ids=\((?P<devices>(?:[^()]|\([^()]*\))*)\))?\s*\{(?P<axes>[^}]*)\}"
)
"""Groups of devices as axes of a mesh that the compiler names, of devices in the order of their numbers or another."""


@dataclass(frozen=True)
class Collective:
    """One instruction by which devices exchange data."""

    kind: CollectiveKind
    axes: tuple[str, ...]
    """The mesh axes along which devices take part."""
    group_size: int
    shapes: tuple[Shape, ...]
    """Of what a device has afterwards; of several arrays where the compiler combined them."""
    times: int
    """How often it runs in one execution of the program."""
    exact: bool
    """False where a loop's number of trips isn't known, or a conditional may leave it out: then it runs at least once, or at most ``times``."""
    written: bool
    """Whether the program says it itself, in a call by shards; else the partitioner made it."""
    op_name: str
    frames: tuple[Frame, ...]
    """The lines that it was made for, innermost first."""
    instruction: Instruction
    computation: str

    @property
    def result_bytes(self) -> int:
        """What a device has afterwards."""
        return sum(shape.num_bytes for shape in self.shapes)

    @property
    def operand_bytes(self) -> int:
        """What a device brings."""
        match self.kind:
            case "all-gather":
                return self.result_bytes // self.group_size
            case "reduce-scatter":
                return self.result_bytes * self.group_size
            case _:
                return self.result_bytes

    @property
    def wire_bytes(self) -> int:
        """What a device sends each time."""
        whole = max(self.result_bytes, self.operand_bytes)
        match self.kind:
            case "collective-permute":
                return whole
            case "all-reduce":
                return 2 * whole * (self.group_size - 1) // self.group_size
            case _:
                return whole * (self.group_size - 1) // self.group_size


def collectives(module: Module, mesh: Mapping[str, int], /) -> list[Collective]:
    """All collectives of a partitioned module on a mesh of these axis sizes, in order from slow to fast.

    An all-reduce of which only a device's own part is used is a reduce-scatter: that is how the partitioner writes one.
    Collectives of a single device are left out. Raises ValueError when the module is for another number of devices.
    """
    users: dict[str, dict[str, list[Instruction]]] = {}
    found = []
    for computation, instruction, times, exact in module.executed():
        if instruction.opcode not in KINDS:
            continue
        if computation not in users:
            users[computation] = _users(module.computations[computation])
        kind = cast("CollectiveKind", instruction.opcode)
        axes, group_size = _participants(instruction, mesh)
        shapes = instruction.shapes
        part = _only_part(users[computation].get(instruction.name, [])) if kind == "all-reduce" else None
        if part is not None and part.num_elements * group_size == shapes[0].num_elements:
            kind, shapes = "reduce-scatter", (part,)
        if group_size > 1:
            written = bool(_WRITTEN.search(instruction.op_name.rpartition("/")[2]))
            frames = tuple(module.frames(instruction))
            found.append(
                Collective(
                    kind,
                    axes,
                    group_size,
                    shapes,
                    times,
                    exact,
                    written,
                    instruction.op_name,
                    frames,
                    instruction,
                    computation,
                )
            )
    return found


def _users(computation: Sequence[Instruction]) -> dict[str, list[Instruction]]:
    users: dict[str, list[Instruction]] = {}
    for instruction in computation:
        for operand in instruction.operands:
            users.setdefault(operand.partition("#")[0], []).append(instruction)
    return users


def _only_part(users: Sequence[Instruction]) -> Shape | None:
    """The slice that is all that its users take of an array, if so."""
    if len(users) == 1 and users[0].opcode == "dynamic-slice" and len(users[0].shapes) == 1:
        return users[0].shapes[0]
    return None


def _participants(instruction: Instruction, mesh: Mapping[str, int]) -> tuple[tuple[str, ...], int]:
    """The mesh axes that a collective's groups run along, and how many devices a group has."""
    sizes = tuple(mesh.values())
    groups = _groups(instruction.attributes, math.prod(sizes))
    coordinates = np.stack(np.unravel_index(groups, sizes), axis=-1)
    moved = (coordinates != coordinates[:, :1]).any(axis=(0, 1))
    axes = tuple(axis for axis, used in zip(mesh, moved, strict=True) if used)
    permuted = instruction.opcode == "collective-permute"
    return axes, math.prod(mesh[axis] for axis in axes) if permuted else int(groups.shape[1])


def _groups(attributes: str, num_devices: int) -> np.ndarray:
    """Devices that exchange data with each other, one group a row, of a size each."""
    if pairs := re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", attributes):
        groups = np.array([list(map(int, pair)) for pair in re.findall(r"(\d+),(\d+)", pairs[1])]).reshape(-1, 2)
    elif listed := re.search(r"replica_groups=\{((?:\{[\d,]+\},?)*)\}", attributes):
        rows = [list(map(int, row.split(","))) for row in re.findall(r"[\d,]*\d", listed[1].replace("},{", " "))]
        groups = np.array(rows or [list(range(num_devices))])
    elif iota := re.search(r"replica_groups=\[([\d,]+)\]<=(\S+)", attributes):
        groups = _devices(iota[2]).reshape(_integers(iota[1]))
    elif named := _NAMED.search(attributes):
        groups = _along_axes(named["mesh"], named["devices"], named["axes"])
    else:
        raise ValueError(f"there are no groups of devices in {attributes[:200]!r}")
    if groups.max(initial=0) >= num_devices:
        raise ValueError(f"the program is for more devices than the {num_devices} of the mesh: {attributes[:200]!r}")
    return groups


def _devices(text: str) -> np.ndarray:
    """Devices in order: ``[4,2]T(1,0)`` are all, counted as 4 × 2 and transposed; or they are listed."""
    iota = re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if iota is None:
        return np.array(_integers(text))
    shape = _integers(iota[1])
    return np.arange(math.prod(shape)).reshape(shape).transpose(_integers(iota[2]) if iota[2] else range(len(shape)))


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _along_axes(mesh: str, order: str | None, along: str) -> np.ndarray:
    """Groups given as axes of a mesh that the compiler names, or parts of them: ``'a':(2)4`` is 4 of what 2 are before."""
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", mesh)}
    factors: list[int] = []
    chosen: list[int] = []
    parts = re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", along)
    for axis, size in sizes.items():
        start = 1
        for _, before, part in sorted((part for part in parts if part[0] == axis), key=lambda part: int(part[1] or 1)):
            if before:
                factors += [int(before) // start, int(part)]
                start = int(before) * int(part)
            else:
                factors.append(size)
                start = size
            chosen.append(len(factors) - 1)
        factors.append(size // start)
    devices = (_devices(order) if order else np.arange(math.prod(sizes.values()))).reshape(factors)
    rest = [index for index in range(len(factors)) if index not in chosen]
    return devices.transpose(*rest, *chosen).reshape(-1, math.prod(factors[index] for index in chosen))
