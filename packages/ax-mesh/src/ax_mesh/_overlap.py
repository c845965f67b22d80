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
    asynchronous: bool
    products_meanwhile: int
    """Instructions with matrix products, or kernels, that are scheduled between its start and its end."""
    op_name: str


@dataclass(frozen=True)
class _End:
    kind: CollectiveKind
    channel: str
    phase: str
    instruction: Instruction


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
    ends = [_end(module, instruction) for instruction in schedule]
    products = [_has_product(module, instruction) for instruction in schedule]
    for begin, start in enumerate(ends):
        if start is None or start.phase == "done":
            continue
        finish = begin
        if start.phase == "start":
            finish = next(i for i, end in enumerate(ends) if i > begin and end is not None and _closes(start, end))
        meanwhile = sum(products[begin + 1 : finish])
        yield Overlap(start.kind, times, start.phase == "start", meanwhile, start.instruction.op_name)


def _closes(start: _End, end: _End) -> bool:
    if end.phase != "done":
        return False
    return start.instruction.name in end.instruction.operands or bool(start.channel and start.channel == end.channel)


def _end(module: Module, instruction: Instruction) -> _End | None:
    """What an instruction of a schedule is of a collective: its ``start``, its ``done``, ``all`` of it, or nothing."""
    opcode = instruction.opcode
    for phase in ("start", "done"):
        base = opcode.removesuffix(f"-{phase}")
        if base != opcode and base in KINDS:
            return _End(cast("CollectiveKind", base), "", phase, instruction)
    if opcode in KINDS:
        return _End(cast("CollectiveKind", opcode), "", "all", instruction)
    if opcode not in {"fusion", "async-start", "async-done"}:
        return None
    called = _called(module, instruction)
    found = next((each for each in called if each.opcode in KINDS), None)
    if opcode == "async-done":
        return _End("all-reduce", "", "done", instruction)  # Which kind is its start's to say.
    if found is None:
        return None
    targets = " ".join(each.attributes for each in called if each.opcode == "custom-call")
    phase = (
        "start"
        if opcode == "async-start" or '"AsyncCollectiveStart"' in targets
        else "done"
        if '"AsyncCollectiveDone"' in targets
        else ""
    )
    if not phase:  # A fusion that computes while a collective is under way.
        return None
    channel = re.search(r"channel_id=\d+", found.attributes)
    return _End(cast("CollectiveKind", found.opcode), channel[0] if channel else "", phase, instruction)


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
