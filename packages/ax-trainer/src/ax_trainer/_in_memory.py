"""A batch source, a checkpointer and a metric sink that live in memory: for tests, notebooks, and as patterns to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import jax
import numpy as np

from .protocols import HostBatch, Tree


class MemoryBatches:
    """Given batches in order, over and over if ``repeat``."""

    def __init__(self, batches: Sequence[HostBatch], *, repeat: bool = True) -> None:
        self._batches = tuple(batches)
        self._repeat = repeat
        self._position = 0

    def __next__(self) -> HostBatch:
        """The next batch."""
        if not self._batches or (self._position >= len(self._batches) and not self._repeat):
            raise StopIteration
        batch = self._batches[self._position % len(self._batches)]
        self._position += 1
        return batch

    def get_state(self) -> bytes:
        """The number of batches given."""
        return str(self._position).encode()

    def set_state(self, state: bytes, /) -> None:
        """Continue after that many batches."""
        self._position = int(state)

    def origins(self, state: bytes, /) -> Sequence[str]:
        """The number of the batch."""
        return [f"batch {int(state) % len(self._batches)}"]

    def epochs(self, state: bytes, /) -> float:
        """How often all batches were given."""
        return int(state) / len(self._batches)


class MemoryCheckpointer:
    """Keeps copies on the host. ``steps`` holds what was saved, newest last."""

    def __init__(self) -> None:
        self.steps: dict[int, tuple[object, dict[str, bytes]]] = {}

    def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None:
        """Copy the arrays to the host."""
        self.steps[step] = (jax.tree.map(lambda x: np.array(x), arrays), dict(blobs))

    def restore(self, step: int, abstract: Tree, /) -> tuple[Tree, Mapping[str, bytes]]:
        """Copy the arrays to the devices."""
        if step not in self.steps:
            raise ValueError(f"no checkpoint of step {step}; there are {sorted(self.steps)}")
        arrays, blobs = self.steps[step]
        if not _congruent(abstract, arrays):
            there, here = _paths(arrays), _paths(abstract)
            raise ValueError(
                f"the checkpoint of step {step} has another structure: it lacks {sorted(here - there)} and has "
                f"{sorted(there - here)} too many"
            )

        def place(path: tuple[object, ...], want: jax.ShapeDtypeStruct, have: np.ndarray) -> jax.Array:
            if want.shape != have.shape or want.dtype != have.dtype:
                name = jax.tree_util.keystr(path, simple=True, separator="/")
                raise ValueError(
                    f"{name} is {have.dtype}{list(have.shape)} in the checkpoint of step {step}, wanted "
                    f"{want.dtype}{list(want.shape)}"
                )
            placed: jax.Array = jax.device_put(have.copy(), want.sharding)
            return placed

        return cast("Tree", jax.tree_util.tree_map_with_path(place, abstract, arrays)), dict(blobs)

    def latest(self) -> int | None:
        """The newest step."""
        return max(self.steps, default=None)

    def wait(self) -> None:
        """Saves are complete when they return."""


def _congruent(left: object, right: object) -> bool:
    structures: tuple[object, object] = (jax.tree.structure(left), jax.tree.structure(right))
    return structures[0] == structures[1]


def _paths(tree: object) -> set[str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves}


class MemorySink:
    """Keeps what was written as ``(step, group, values)``, in order."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str, dict[str, float]]] = []
        self.closed = False

    def rewind(self, step: int, /) -> None:
        """Drop the records of later steps."""
        self.records = [record for record in self.records if record[0] <= step]

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        """Keep a record."""
        self.records.append((step, name, dict(values)))

    def last_step(self) -> int | None:
        """The greatest step of any record."""
        return max((step for step, _, _ in self.records), default=None)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    def history(self, group: str, name: str = "loss") -> dict[int, float]:
        """The values of one metric by step."""
        return {step: values[name] for step, where, values in self.records if where == group}
