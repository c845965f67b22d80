"""Which collectives of a compiled program are asynchronous, and how much is computed while they are under way.

This is read from the program as it is scheduled. XLA for GPUs writes ``all-gather-start`` and ``all-gather-done``; XLA for
TPUs puts the two ends, and the products that it computes meanwhile, into fusions around copies of one collective, which
share its channel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from ._collectives import KINDS, CollectiveKind
from ._hlo import Instruction, Module

_PRODUCTS = frozenset({"dot", "convolution", "ragged-dot"})
_KERNELS = re.compile(r'custom_call_target="(?:tpu_custom_call|__cublas|__cudnn|__triton|mosaic_gpu)')


@dataclass(frozen=True)
class Overlap:
    """One collective of the scheduled program."""

    kind: CollectiveKind
    times: int
    """How often it runs, a loop whose trips the final program doesn't show counted once."""
    asynchronous: bool
    products_meanwhile: int
    """Instructions with matrix products, or kernels, that are scheduled between its start and its end."""
    op_name: str


@dataclass(frozen=True)
class _Start:
    """Where a collective begins in a schedule, or all of it."""

    kind: CollectiveKind
    channel: str
    asynchronous: bool


def overlaps(module: Module, /) -> list[Overlap]:
    """The collectives of a scheduled module, in each computation in order of their starts."""
    times: dict[str, int] = {}
    inside: set[str] = set()
    for computation, instruction, number, _ in module.executed():
        times.setdefault(computation, number)
        if instruction.opcode in {"fusion", "async-start"}:
            inside.update(re.findall(r"calls=%?([\w.\-]+)", instruction.attributes))
    return [
        overlap
        for name, number in times.items()
        if name not in inside
        for overlap in _of_schedule(module, module.computations.get(name, ()), number)
    ]


def _of_schedule(module: Module, schedule: Sequence[Instruction], times: int) -> Iterator[Overlap]:
    products = [_has_product(module, instruction) for instruction in schedule]
    for begin, instruction in enumerate(schedule):
        start = _start(module, instruction)
        if start is None:
            continue
        meanwhile = 0
        if start.asynchronous:
            later = range(begin + 1, len(schedule))
            finish = next(i for i in later if _ends(module, schedule[i], instruction.name, start.channel))
            meanwhile = sum(products[begin + 1 : finish])
        yield Overlap(start.kind, times, start.asynchronous, meanwhile, instruction.op_name)


def _start(module: Module, instruction: Instruction) -> _Start | None:
    opcode = instruction.opcode
    base = opcode.removesuffix("-start")
    if base in KINDS:
        return _Start(cast("CollectiveKind", base), "", base != opcode)
    if opcode in {"fusion", "async-start"}:
        found, targets = _inside(module, instruction)
        if found is not None and (opcode == "async-start" or "AsyncCollectiveStart" in targets):
            return _Start(cast("CollectiveKind", found.opcode), _channel(found), asynchronous=True)
    return None


def _ends(module: Module, instruction: Instruction, start: str, channel: str) -> bool:
    """Whether an instruction waits for the collective that ``start`` began, or that has this channel."""
    if instruction.opcode.endswith("-done"):
        return start in instruction.operands
    if instruction.opcode != "fusion" or not channel:
        return False
    found, targets = _inside(module, instruction)
    return found is not None and "AsyncCollectiveDone" in targets and _channel(found) == channel


def _inside(module: Module, instruction: Instruction) -> tuple[Instruction | None, set[str]]:
    """The collective in what an instruction calls, and the targets of its custom calls."""
    called = _called(module, instruction)
    targets = [re.search(r'custom_call_target="([^"]*)"', each.attributes) for each in called]
    return next((each for each in called if each.opcode in KINDS), None), {found[1] for found in targets if found}


def _channel(instruction: Instruction) -> str:
    found = re.search(r"channel_id=\d+", instruction.attributes)
    return found[0] if found else ""


def _has_product(module: Module, instruction: Instruction) -> bool:
    if instruction.opcode == "while":
        return True
    if instruction.opcode == "custom-call":
        return bool(_KERNELS.search(instruction.attributes))
    if instruction.opcode == "fusion":
        return any(_has_product(module, each) for each in _called(module, instruction))
    return instruction.opcode in _PRODUCTS


def _called(module: Module, instruction: Instruction) -> Sequence[Instruction]:
    called = re.search(r"calls=%?([\w.\-]+)", instruction.attributes)
    return module.computations.get(called[1], ()) if called else ()
