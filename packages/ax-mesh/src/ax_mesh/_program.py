"""A program compiled such that one can see what it will do: what it communicates, holds in memory, and computes.

``compile_program`` compiles a lowered function as ``.compile()`` does, and keeps the module that the partitioner left, which
XLA writes to a file when its dump options ask for that pass. It works for devices that are described only.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jax

from ._collectives import Collective, collectives
from ._hlo import Module, parse
from ._overlap import Overlap, overlaps

_PARTITIONED = re.compile(r"after_(?:tpu-)?spmd-partitioning\.before_")


@dataclass(frozen=True)
class Memory:
    """Bytes on each device, as the compiler planned them."""

    arguments: int
    outputs: int
    aliased: int
    """Outputs that take the place of donated arguments."""
    temporaries: int
    code: int
    host: int
    """Of arguments, outputs and temporaries together, what lies in the host's memory."""
    peak: int
    """The most that is in use at a time, arguments included; 0 where the backend doesn't tell."""

    @property
    def total(self) -> int:
        """What has to fit into a device's memory."""
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code


@dataclass(frozen=True)
class Program:
    """A compiled program, and what can be known of it."""

    compiled: jax.stages.Compiled
    partitioned: Module
    """As the partitioner left it: one device's part, with all collectives, and before the backend's passes."""
    mesh: Mapping[str, int]

    @cached_property
    def collectives(self) -> list[Collective]:
        """What it communicates."""
        return collectives(self.partitioned, self.mesh)

    @cached_property
    def overlaps(self) -> list[Overlap]:
        """Which of its collectives, as they are scheduled, computation hides."""
        return overlaps(parse(_text(self.compiled)))

    @cached_property
    def flops_per_device(self) -> float:
        """Of one device's matrix products; what several devices compute alike each of them counts. Kernels are left out."""
        total = 0.0
        shapes = {
            name: {each.name: each.shapes for each in instructions}
            for name, instructions in self.partitioned.computations.items()
        }
        for computation, instruction, times, _ in self.partitioned.executed():
            if instruction.opcode in ("dot", "ragged-dot"):
                name, _, part = instruction.operands[0].partition("#")
                dims = shapes[computation][name][int(part or 0)].dims
                contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.attributes)
                depth = math.prod(dims[int(dim)] for dim in contracted[1].split(",")) if contracted else 1
                (result,) = instruction.shapes
                # A row in groups meets one group's matrix; a sum over such rows is one a group, over that group's rows.
                is_sum = instruction.opcode == "ragged-dot" and "rhs_group_dims" not in instruction.attributes
                total += 2.0 * times * result.num_elements * depth / (result.dims[0] if is_sum else 1)
        return total

    @cached_property
    def memory(self) -> Memory:
        """What it holds. Raises RuntimeError where the backend doesn't tell."""
        found = self.compiled.memory_analysis()
        if found is None:
            raise RuntimeError("this backend doesn't tell how much memory a program takes")
        return Memory(
            found.argument_size_in_bytes,
            found.output_size_in_bytes,
            found.alias_size_in_bytes,
            found.temp_size_in_bytes,
            found.generated_code_size_in_bytes,
            found.host_argument_size_in_bytes + found.host_output_size_in_bytes + found.host_temp_size_in_bytes,
            found.peak_memory_in_bytes,
        )


def compile_program(
    lowered: jax.stages.Lowered, mesh: Mapping[str, int], /, *, compiler_options: Mapping[str, str | bool] | None = None
) -> Program:
    """Compile for the devices that ``lowered`` was lowered for, which are a mesh of these axis sizes (``Mesh.axes``).

    Raises what the compiler raises: out of memory on a TPU is an error with the sizes.
    """
    with tempfile.TemporaryDirectory(prefix="ax-program-") as folder:
        dump = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": "spmd-partitioning"}
        compiled = lowered.compile(compiler_options={**(compiler_options or {}), **dump})
        dumped = [path for path in sorted(Path(folder).iterdir()) if _PARTITIONED.search(path.name)]
        if dumped:
            text = dumped[-1].read_text("utf-8")
        elif math.prod(mesh.values()) == 1:
            text = _text(compiled)
        else:
            raise RuntimeError(
                "the compiler left no partitioned program: it came from JAX's compilation cache. Switch that off: "
                'jax.config.update("jax_enable_compilation_cache", False)'
            )
        return Program(compiled, parse(text), dict(mesh))


def _text(compiled: jax.stages.Compiled) -> str:
    text = compiled.as_text()
    if text is None:
        raise RuntimeError("this backend doesn't show its compiled programs")
    return text
