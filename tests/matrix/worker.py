"""One of several processes that train together: ``worker.py PORT NUMBER RANK CASE KIND FILE``; the first writes what came out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.matrix.cases import CASES, configured
from tests.matrix.training import Kind, train


def main(port: str, number: str, rank: str, case: str, kind: str, file: str) -> None:
    """Train by all devices of all processes."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.distributed.initialize(f"127.0.0.1:{port}", int(number), int(rank))
    _, config = configured(CASES[case], cast("Kind", kind))
    found = train(config.build(devices=jax.devices()), packed=True)
    if rank == "0":
        arrays = {"losses": np.array(found.losses), **{f"initial:{path}": x for path, x in found.initial.items()}}
        for step, gradients in enumerate(found.gradients):
            arrays |= {f"{step}:{path}": x for path, x in gradients.items()}
        np.savez(file, **arrays)  # type: ignore[arg-type]  # for all mypy knows, a name is that of an option


if __name__ == "__main__":
    main(*sys.argv[1:])
