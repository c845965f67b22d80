"""What a run left behind, in a form that can be compared bit for bit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp  # type: ignore[import-untyped]  # it ships no py.typed

Line = tuple[int, str]


def losses(run: Path) -> dict[Line, dict[str, float]]:
    """All reproducible numbers of a run by step and group: everything but what clocks tell. A torn last line is left out."""
    lines: dict[Line, dict[str, float]] = {}
    for text in (run / "metrics.jsonl").read_text().splitlines(keepends=True):
        if not text.endswith("\n"):
            continue
        values = json.loads(text)
        line = (values.pop("step"), values.pop("name"))
        if line[1] not in ("speed", "goodput"):
            assert line not in lines, f"{line} stands there twice"
            lines[line] = values
    return lines


def steps(run: Path) -> list[int]:
    """The complete checkpoints."""
    folder = run / "checkpoints"
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []


def state_digest(run: Path, step: int) -> str:
    """A digest of every array in a checkpoint, read by plain Orbax, and of its blobs but the loop's, which tells of time."""
    folder = run / "checkpoints" / str(step)
    reader = ocp.PyTreeCheckpointer()
    as_numpy = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray), reader.metadata(folder / "arrays").item_metadata.tree
    )
    arrays = reader.restore(folder / "arrays", restore_args=as_numpy)
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(arrays)[0]:
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    for blob in sorted(path for path in (folder / "blobs").iterdir() if path.name != "loop"):
        digest.update(blob.name.encode() + blob.read_bytes())
    return digest.hexdigest()
