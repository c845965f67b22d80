"""Collectives that nobody asked for, by the line that caused them.

A mesh and its rules ask for communication: split parameters are gathered before use, gradients are summed over the devices
that share a batch, activations are summed or gathered along an axis that splits heads or features, tokens travel to their
experts. Whatever else the partitioner inserts mends a contradiction, such as a constraint that splits another dim than the
layers around it do, and is paid for in every step. A collective is asked for when

* the program says it itself, in a call by shards;
* what it moves has the form of a parameter, or of its shard: a gather of the parameter, or a sum of its gradient, at once or
  shard by shard beside the products that need them (Wang et al., "Overlap Communication with Dependent Computation via
  Decomposition in Large Deep Learning Models", ASPLOS 2023);
* it sums scalars or vectors: statistics over the batch;
* else it moves activations, and each of its mesh axes serves a logical name for which such a kind is natural (``ASKED``).

All else is a surprise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import jax
import numpy as np

from ._collectives import KINDS, Collective
from ._hlo import Frame, Instruction
from ._program import Program
from ._rules import Rule

_SUMS = frozenset({"all-reduce", "reduce-scatter"})
_SUMS_AND_GATHERS = _SUMS | {"all-gather", "collective-permute"}
"""At once, or in steps from device to device."""

ASKED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "heads": _SUMS_AND_GATHERS,
        "kv_heads": _SUMS_AND_GATHERS,
        "mlp": _SUMS_AND_GATHERS,
        "vocab": _SUMS_AND_GATHERS,
        "seq": _SUMS_AND_GATHERS,
        "expert": _SUMS_AND_GATHERS | {"all-to-all", "ragged-all-to-all"},
        "layers": frozenset({"collective-permute"}),
    }
)
"""Kinds of collectives of activations that are natural along a mesh axis that serves a logical name.

A name that isn't here, "batch" and "embed" first of all, asks for none: devices that share a batch don't share activations.
"""

_STEPS = 8
"""How far from a collective, in instructions, the constraint may be that caused it."""


@dataclass(frozen=True)
class Surprise:
    """A collective that nobody asked for."""

    collective: Collective
    line: Frame | None
    """The line whose operation it was made for."""
    constraints: tuple[Frame, ...]
    """The lines of the nearest constraints on where an array lies, between which it mends."""

    def __str__(self) -> str:
        found = self.collective
        arrays = ", ".join(map(str, found.shapes))
        times = "" if found.times == 1 else f", {found.times} times"
        where = "" if self.line is None else f", made for {found.op_name.rpartition('/')[2]} at {self.line}"
        asked = " and ".join(map(str, self.constraints))
        return (
            f"{found.kind} over {'+'.join(found.axes)} of {arrays} ({found.wire_bytes:,} bytes sent{times}){where}"
            + (f", near the constraint at {asked}" if asked else "")
        )


def lint(
    program: Program,
    rules: Iterable[Rule],
    /,
    *,
    asked: Mapping[str, Iterable[str]] = ASKED,
    passing: Sequence[str] = (),
) -> list[Surprise]:
    """The collectives of ``program`` that ``rules`` don't ask for, those that send most first.

    ``asked`` are kinds by logical name. ``passing`` are parts of file names, such as ``"my_model/_module.py"``: lines there
    only pass a call on, so that the caller's line is shown in their stead; this package's own always do.
    """
    along = _kinds_by_axis(rules, asked)
    parameters = _forms_of_arguments(program)
    here = str(Path(__file__).parent)
    found = [
        Surprise(each, _line(each.frames, (here, *passing)), tuple(_constraints(program, each, (here, *passing))))
        for each in program.collectives
        if not _is_asked(each, along, parameters)
    ]
    return sorted(found, key=lambda each: -each.collective.times * each.collective.wire_bytes)


def _is_asked(found: Collective, along: Mapping[str, set[str]], parameters: frozenset[tuple[int, ...]]) -> bool:
    if found.written or all(found.kind in along.get(axis, ()) for axis in found.axes):
        return True
    if found.kind not in _SUMS_AND_GATHERS:
        return False
    in_one_ring = found.kind != "collective-permute" or len(found.axes) == 1
    if in_one_ring and all(_form(shape.dims) in parameters for shape in found.shapes):
        return True
    return found.kind in _SUMS and all(len(_form(shape.dims)) <= 1 for shape in found.shapes)


def _kinds_by_axis(rules: Iterable[Rule], asked: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    along: dict[str, set[str]] = {}
    for name, target in rules:
        for axis in (target,) if isinstance(target, str) else target or ():
            along.setdefault(axis, set()).update(asked.get(name, ()))
    return along


def _form(dims: Iterable[int]) -> tuple[int, ...]:
    """Sizes in rising order, ones left out: the same for an array, its transpose, and a slice of one layer."""
    return tuple(sorted(size for size in dims if size > 1))


def _forms_of_arguments(program: Program) -> frozenset[tuple[int, ...]]:
    """The forms of the program's floating-point arguments: whole, or split over some of the mesh axes that split them.

    Of an array of several layers also those of one layer.
    """

    def forms(argument: jax.ShapeDtypeStruct, sharding: jax.sharding.Sharding | None) -> frozenset[tuple[int, ...]]:
        if np.issubdtype(argument.dtype, np.integer) or not isinstance(sharding, jax.sharding.NamedSharding):
            return frozenset()  # None: the program doesn't use it.
        entries = (*sharding.spec, *(None,) * (len(argument.shape) - len(sharding.spec)))
        options = [
            {size // ways for ways in _ways(entry, program.mesh)}
            for size, entry in zip(argument.shape, entries, strict=True)
        ]
        return frozenset(_form(part) for dims in itertools.product(*options) for part in (dims, dims[1:]))

    found = jax.tree.map(forms, program.compiled.args_info, program.compiled.input_shardings)
    return frozenset[tuple[int, ...]]().union(*jax.tree.leaves(found))


def _ways(entry: object, mesh: Mapping[str, int]) -> Iterator[int]:
    """In how many parts a dim may lie, that some or all axes of ``entry`` split."""
    axes = (entry,) if isinstance(entry, str) else entry if isinstance(entry, tuple) else ()
    for number in range(len(axes) + 1):
        for some in itertools.combinations(axes, number):
            yield math.prod(mesh[axis] for axis in some)


def _line(frames: Sequence[Frame], passing: Sequence[str]) -> Frame | None:
    """The innermost line that does more than pass a call on."""
    return next((each for each in frames if not any(part in each.file for part in passing)), next(iter(frames), None))


def _constraints(program: Program, found: Collective, passing: Sequence[str]) -> Iterator[Frame]:
    """The lines of the nearest constraints after and before a collective, as far as nothing else could have moved data."""
    instructions = program.partitioned.computations[found.computation]
    by_name = {each.name: each for each in instructions}
    before = {each.name: [operand.partition("#")[0] for operand in each.operands] for each in instructions}
    after: dict[str, list[str]] = {}
    for name, operands in before.items():
        for operand in operands:
            after.setdefault(operand, []).append(name)
    seen: set[str] = set()
    for neighbours in (after, before):
        nearest = _nearest_constraint(found.instruction.name, neighbours, by_name)
        line = None if nearest is None else _line(tuple(program.partitioned.frames(nearest)), passing)
        if line is not None and str(line) not in seen:
            seen.add(str(line))
            yield line


def _nearest_constraint(
    start: str, neighbours: Mapping[str, Sequence[str]], by_name: Mapping[str, Instruction]
) -> Instruction | None:
    reached, ring = {start}, [start]
    for _ in range(_STEPS):
        ring = [name for each in ring for name in neighbours.get(each, ()) if name in by_name and name not in reached]
        reached.update(ring)
        for name in ring:
            if by_name[name].op_name.endswith("sharding_constraint"):
                return by_name[name]
        ring = [name for name in ring if by_name[name].opcode not in KINDS | {"dot", "while", "parameter"}]
    return None
