"""Orbax's own ``CheckpointManager`` as a ``Checkpointer`` of ax-trainer, without ax-runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, cast

import jax
import orbax.checkpoint as ocp  # type: ignore[import-untyped]  # it ships no py.typed

Tree = TypeVar("Tree")


class BareOrbax:
    """Fits ``Checkpointer``: arrays by ``StandardSave``, bytes as JSON beside them."""

    def __init__(self, folder: Path) -> None:
        handlers = {"arrays": ocp.StandardCheckpointHandler(), "blobs": ocp.JsonCheckpointHandler()}
        self._manager = ocp.CheckpointManager(folder.absolute(), item_handlers=handlers)

    def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None:
        texts = {name: blob.decode("latin-1") for name, blob in blobs.items()}
        items = ocp.args.Composite(arrays=ocp.args.StandardSave(arrays), blobs=ocp.args.JsonSave(texts))
        self._manager.save(step, args=items)

    def restore(self, step: int, abstract: Tree, /) -> tuple[Tree, Mapping[str, bytes]]:
        saved = _shapes(self._manager.item_metadata(step)["arrays"])
        for name, shape in _shapes(abstract).items():
            if saved.get(name) != shape:  # Orbax refuses another shape as well, but doesn't say whose.
                raise ValueError(f"{name} is {shape}, but {saved.get(name)} in the checkpoint of step {step}")
        items = ocp.args.Composite(arrays=ocp.args.StandardRestore(abstract), blobs=ocp.args.JsonRestore())
        restored = self._manager.restore(step, args=items)
        blobs = {name: text.encode("latin-1") for name, text in restored.blobs.items()}
        return cast("Tree", restored.arrays), blobs

    def latest(self) -> int | None:
        return cast("int | None", self._manager.latest_step())

    def wait(self) -> None:
        self._manager.wait_until_finished()


def _shapes(tree: object) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape) for path, leaf in leaves}
