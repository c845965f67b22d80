"""One of several processes that train together: ``worker.py PORT NUMBER RANK FOLDER STEPS``.

It takes its rows of every batch, stops on SIGTERM, and leaves what came out in the folder, where it also goes on from.
"""

from __future__ import annotations

import json
import pickle
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import jax
import numpy as np
from ax_trainer import BadSteps
from ax_trainer.protocols import Tree
from ax_trainer.testing import MemoryBatches, MemorySink
from runs import BATCHES, ByRows, Poisoned, train


class Files:
    """Fits ``Checkpointer``: each process keeps what it holds of a state, which is all of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None:
        leaves = [np.array(leaf) for leaf in jax.tree.leaves(arrays)]
        (self._folder / f"{step}.pickle").write_bytes(pickle.dumps((leaves, dict(blobs))))

    def restore(self, step: int, abstract: Tree, /) -> tuple[Tree, Mapping[str, bytes]]:
        leaves, blobs = pickle.loads((self._folder / f"{step}.pickle").read_bytes())

        def place(want: jax.ShapeDtypeStruct, leaf: np.ndarray) -> jax.Array:
            return jax.make_array_from_callback(want.shape, want.sharding, lambda index: leaf[index])

        wanted = jax.tree.leaves(abstract)
        placed = [place(want, leaf) for want, leaf in zip(wanted, leaves, strict=True)]
        return cast("Tree", jax.tree.unflatten(jax.tree.structure(abstract), placed)), blobs

    def latest(self) -> int | None:
        return max((int(file.stem) for file in self._folder.glob("*.pickle")), default=None)

    def wait(self) -> None:
        pass


class OnTerm:
    """Fits ``StopSignal``."""

    def __init__(self) -> None:
        self._told = False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, *_: object) -> None:
        self._told = True

    def should_stop(self, _step: int, /) -> bool:
        return self._told


class Slowly:
    """Fits ``Hook``: tells of each step, and leaves time for a signal."""

    def on_step(self, step: int, /) -> None:
        print("step", step, flush=True)
        time.sleep(0.05)


def main(port: str, number: str, rank: str, folder: str, steps: str) -> None:
    """Train."""
    jax.distributed.initialize(f"127.0.0.1:{port}", int(number), int(rank))
    own, rows = int(rank), len(BATCHES[0]["tokens"]) // int(number)
    batches = [{name: x[own * rows : (own + 1) * rows] for name, x in batch.items()} for batch in BATCHES]
    sink = MemorySink()
    result = train(
        Files(Path(folder) / rank),
        sink if rank == "0" else None,
        partitioner=ByRows(jax.devices()),
        model=Poisoned(),
        batches=MemoryBatches(batches),
        evaluators={},
        stop=OnTerm(),
        hooks=[Slowly()],
        num_steps=int(steps),
        bad_steps=BadSteps.Config(on_non_finite="rewind", max_interventions=100),
    )
    told = {"step": result.step, "why": result.why, "losses": sink.history("train")}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
