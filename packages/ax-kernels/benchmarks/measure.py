"""Time and temporary memory of compiled calls, taken in turns so that a noisy machine is noisy for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple

import jax

Call = Callable[..., object]


class Measurement(NamedTuple):
    cpu_seconds: float
    wall_seconds: float
    temporary_bytes: int


def measure(calls: Mapping[str, Call], arrays: tuple[jax.Array, ...], repetitions: int) -> dict[str, Measurement]:
    compiled = {name: jax.jit(call).lower(*arrays).compile() for name, call in calls.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for repetition in range(repetitions + 1):
        for name, program in compiled.items():
            cpu, wall = time.process_time(), time.perf_counter()
            jax.block_until_ready(program(*arrays))
            if repetition:  # the first warms up
                times[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    result = {}
    for name, program in compiled.items():
        memory = program.memory_analysis()
        assert memory is not None, "this backend doesn't tell its memory"
        cpu_times, wall_times = zip(*times[name], strict=True)
        result[name] = Measurement(median(cpu_times), median(wall_times), memory.temp_size_in_bytes)
    return result


def print_rows(title: str, measurements: Mapping[str, Measurement]) -> None:
    """Markdown rows; the first call is the one that the others' ratios are to."""
    reference = next(iter(measurements.values()))
    for name, one in measurements.items():
        print(
            f"| {title} | {name} | {one.wall_seconds * 1e3:.1f} | {one.wall_seconds / reference.wall_seconds:.2f} "
            f"| {one.cpu_seconds / reference.cpu_seconds:.2f} | {one.temporary_bytes / 2**20:.1f} |",
            flush=True,
        )


HEADER = "| call | backend | ms | time, ratio | CPU time, ratio | temporaries, MiB |\n|---|---|--:|--:|--:|--:|"
