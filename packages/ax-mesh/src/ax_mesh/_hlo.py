"""A compiled program's text, read: computations, their instructions, how often each runs, and where it was written.

XLA prints a module as computations of one instruction a line, ``%name = type opcode(operands), attributes``. Loops stay
loops, so what an instruction costs is its own cost times the trips of all loops around it. A trip count is the one that
XLA found, else that of a loop that counts as JAX's scans do, from zero up to a constant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

_BITS = {"pred": 8, "token": 0}
_SHAPE = re.compile(r"\b([a-z]+[0-9]*(?:e[0-9]+m[0-9]+[a-z]*)?)\[([0-9,<=]*)\]")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_CALLED = re.compile(r"(?:calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


@dataclass(frozen=True)
class Shape:
    """Of one array."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.dims)

    @property
    def num_bytes(self) -> int:
        """How many bytes they take."""
        bits = _BITS.get(self.dtype)
        if bits is None:
            found = re.match(r"[a-z]+([0-9]+)", self.dtype)
            bits = int(found[1]) if found else 0
        return (self.num_elements * bits + 7) // 8

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class Frame:
    """A line of source."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    """Of its result; several for a tuple."""
    operands: tuple[str, ...]
    """Names of instructions of the same computation, ``name#2`` for a part of one that gives several arrays."""
    arguments: str
    attributes: str
    is_root: bool

    @cached_property
    def op_name(self) -> str:
        """The path of JAX's operation that it was made for: ``jit(step)/while/body/dot_general``."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found[1] if found else ""

    @cached_property
    def frame_id(self) -> int:
        """Where it was written, as ``Module.frames`` counts; 0 for nowhere."""
        found = re.search(r"stack_frame_id=(\d+)", self.attributes)
        return int(found[1]) if found else 0


@dataclass(frozen=True)
class Module:
    """A program."""

    computations: Mapping[str, Sequence[Instruction]]
    entry: str
    _locations: Mapping[int, Frame] = field(repr=False)
    _stack: Mapping[int, tuple[int, int]] = field(repr=False)

    def frames(self, instruction: Instruction, /) -> Iterator[Frame]:
        """The lines that led to it, innermost first."""
        frame = instruction.frame_id
        while frame in self._stack:
            location, frame = self._stack[frame]
            if location in self._locations:
                yield self._locations[location]

    def executed(self) -> Iterator[tuple[str, Instruction, int, bool]]:
        """Every instruction that runs, with its computation, how often, and whether that is exact.

        A loop without a known number of trips counts once, and so does each branch of a conditional: not exact.
        """
        waiting = [(self.entry, 1, True)]
        while waiting:
            computation, times, exact = waiting.pop()
            for instruction in self.computations.get(computation, ()):
                yield computation, instruction, times, exact
                called = _CALLED.findall(instruction.attributes)
                branches = _BRANCHES.search(instruction.attributes)
                if branches:
                    called += re.findall(r"%?([\w.\-]+)", branches[1])
                if instruction.opcode == "while":
                    trips = self._trips(computation, instruction)
                    waiting += [(each, times * (trips or 1), exact and trips is not None) for each in called]
                else:
                    known = exact and instruction.opcode != "conditional"
                    waiting += [(each, times, known) for each in called]

    def _trips(self, computation: str, loop: Instruction) -> int | None:
        """How often a loop runs: as XLA says, or because it counts from 0, always as far, while less than a constant."""
        known = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes)
        if known:
            return int(known[1])
        condition, body = (
            self._by_name(found[1]) if (found := re.search(rf"{role}=%?([\w.\-]+)", loop.attributes)) else {}
            for role in ("condition", "body")
        )
        compare = next((each for each in condition.values() if each.is_root and each.opcode == "compare"), None)
        if compare is None or "direction=LT" not in compare.attributes:
            return None
        counter, bound = _part(condition, compare.operands[0]), _constant(condition, compare.operands[1])
        start = _element(self._by_name(computation), loop.operands[0], counter)
        following = next((each.operands for each in body.values() if each.is_root and each.opcode == "tuple"), ())
        if bound is None or counter is None or start != 0 or counter >= len(following):
            return None
        step = _step(body, following[counter], counter)
        return -(-bound // step) if step else None

    def _by_name(self, computation: str) -> dict[str, Instruction]:
        return {each.name: each for each in self.computations.get(computation, ())}


def _part(computation: Mapping[str, Instruction], operand: str) -> int | None:
    """Which part of a tuple an operand is."""
    name, _, part = operand.partition("#")
    if part:
        return int(part)
    instruction = computation.get(name)
    if instruction is None or instruction.opcode != "get-tuple-element":
        return None
    found = re.search(r"index=(\d+)", instruction.attributes)
    return int(found[1]) if found else None


def _constant(computation: Mapping[str, Instruction], operand: str) -> int | None:
    """Its value, if it is an integer constant or a copy of one."""
    found = computation.get(operand)
    while found is not None and found.opcode == "copy":
        found = computation.get(found.operands[0])
    return int(found.arguments) if found and found.opcode == "constant" and found.arguments.isdigit() else None


def _step(body: Mapping[str, Instruction], operand: str, counter: int) -> int | None:
    """By how much a loop's body raises its counter: once, or more often where the loop has been unrolled."""
    step = 0
    while _part(body, operand) != counter:
        found = body.get(operand)
        if found is not None and found.opcode == "copy":
            operand = found.operands[0]
            continue
        raised = found is not None and found.opcode == "add" and len(found.operands) == 2
        constants = [_constant(body, each) for each in found.operands] if found is not None and raised else []
        if found is None or sum(constant is not None for constant in constants) != 1:
            return None
        step += sum(constant or 0 for constant in constants)
        operand = found.operands[constants.index(None)]
    return step


def _element(computation: Mapping[str, Instruction], operand: str, part: int | None) -> int | None:
    """The integer constant that a part of a tuple is, if so."""
    found = computation.get(operand)
    if found is None or found.opcode != "tuple" or part is None or part >= len(found.operands):
        return None
    return _constant(computation, found.operands[part])


def parse(text: str, /) -> Module:
    """The module that XLA printed. Raises ValueError when it has no entry computation."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            current = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (found := _LINE.match(line)):
            current.append(_instruction(found[2], found[3], is_root=bool(found[1])))
    if not entry:
        raise ValueError("this is no HLO module: it has no ENTRY computation")
    return Module(computations, entry, _locations(text), _stack(text))


def _instruction(name: str, text: str, *, is_root: bool) -> Instruction:
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    kind, rest = text[:end], text[end:].lstrip()
    opening = rest.index("(")
    closing = _closing(rest, opening)
    arguments = rest[opening + 1 : closing]
    return Instruction(
        name,
        rest[:opening],
        shapes_in(kind),
        tuple(re.findall(r"%([\w.\-]+(?:#\d+)?)", arguments)),
        arguments,
        rest[closing + 1 :],
        is_root,
    )


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis at ``opening`` is closed."""
    depth = 0
    for found in re.finditer(r"[()]", text[opening:]):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return opening + found.start()
    raise ValueError(f"a parenthesis isn't closed in {text!r}")


def shapes_in(text: str, /) -> tuple[Shape, ...]:
    """The arrays that a type, or an attribute with types in it, speaks of."""
    return tuple(
        Shape(dtype, tuple(int(size.lstrip("<=")) for size in dims.split(",") if size))
        for dtype, dims in _SHAPE.findall(text)
    )


def _table(text: str, title: str) -> Iterator[tuple[int, str]]:
    """The numbered rows below ``title``, up to the empty line."""
    _, found, below = text.partition(f"\n{title}\n")
    for line in below.splitlines() if found else ():
        number, _, row = line.partition(" ")
        if not number.isdigit():
            return
        yield int(number), row


def _locations(text: str) -> dict[int, Frame]:
    files = {number: row.strip('"') for number, row in _table(text, "FileNames")}
    functions = {number: row.strip('"') for number, row in _table(text, "FunctionNames")}
    numbers = {number: _numbers(row) for number, row in _table(text, "FileLocations")}
    return {
        number: Frame(files[row["file_name_id"]], row["line"], functions.get(row["function_name_id"], ""))
        for number, row in numbers.items()
    }


def _stack(text: str) -> dict[int, tuple[int, int]]:
    """Location and parent of each frame. XLA prints a parent's number one too high, so that 1 stands for none."""
    rows = {number: _numbers(row) for number, row in _table(text, "StackFrames")}
    return {number: (row["file_location_id"], row.get("parent_frame_id", 1) - 1) for number, row in rows.items()}


def _numbers(row: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", row)}
