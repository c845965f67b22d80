"""One of several processes that share a folder of checkpoints: ``one_of_several.py PORT NUMBER RANK FOLDER WHAT``.

``save`` saves steps 1 to 3 and is complete; ``die`` saves step 4 while the last process is killed; ``restore`` compares the newest step with what
was saved, over whatever devices there are; ``damaged`` expects that to be refused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from ax_runtime.checkpoint import CheckpointError, OrbaxCheckpointer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROWS = 1 << 14


def values(step: int) -> np.ndarray:
    """``[ROWS, 64]``: what is saved at a step."""
    return np.random.default_rng(step).standard_normal((ROWS, 64)).astype(np.float32)


def main(port: str, number: str, rank: str, folder: str, what: str) -> None:
    """Do it."""
    if number != "1":
        jax.distributed.initialize(f"127.0.0.1:{port}", int(number), int(rank))
    mesh = Mesh(np.array(jax.devices()), ("a",))
    split, whole = NamedSharding(mesh, PartitionSpec("a")), NamedSharding(mesh, PartitionSpec())

    def placed(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    def state(step: int) -> dict[str, jax.Array]:
        return {"split": placed(values(step), split), "whole": placed(np.full(1, step), whole)}

    with contextlib.closing(OrbaxCheckpointer.Config(keep_last=2).build(folder=Path(folder))) as checkpointer:
        if what == "save":
            for step in (1, 2, 3):
                checkpointer.save(step, state(step), {"input": b"%d" % step})
            checkpointer.wait()
            assert checkpointer.latest() == 3
            return
        if what == "die":
            if rank != "0":
                os.kill(os.getpid(), signal.SIGKILL)
            checkpointer.save(4, state(4), {"input": b"4"})
            checkpointer.wait()
        newest = checkpointer.latest()
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(0))
        assert newest is not None
        if what == "damaged":
            with pytest.raises(CheckpointError, match=r"is damaged.* newest good one before it is step 2"):
                checkpointer.restore(newest, abstract)
            return
        restored, blobs = checkpointer.restore(newest, abstract)
        assert blobs == {"input": b"%d" % newest}
        assert int(restored["whole"].addressable_data(0)[0]) == newest
        for shard in restored["split"].addressable_shards:
            assert np.array_equal(shard.data, values(newest)[shard.index])
        print(newest)


if __name__ == "__main__":
    main(*sys.argv[1:])
