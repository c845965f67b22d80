"""Another checkpointer: a step is one file of numpy's, ``<step>.npz``, that enters the folder by a rename."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, cast

import ax_config
import jax
import numpy as np
from ax_config import Config, replace
from ax_runtime.checkpoint import OrbaxCheckpointer

ConfigT = TypeVar("ConfigT", bound=Config[object])
Tree = TypeVar("Tree")


class NpzCheckpointer:
    """Fits ``StateStore`` of ax-recipes, for jobs of one process."""

    class Config(ax_config.Config["NpzCheckpointer"]):
        """What is kept, and how it is written."""

        keep_last: int = 3
        keep_every: int | None = None
        compress: bool = False
        background: bool = False  # write while training goes on

    def __init__(self, cfg: Config, /, *, folder: Path) -> None:
        self._cfg, self._folder = cfg, folder
        self._thread = ThreadPoolExecutor(max_workers=1) if cfg.background else None
        self._pending: Future[None] | None = None

    def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None:
        """Copy to the host, and write."""
        self.wait()
        content = {f"arrays/{name}": np.array(leaf) for name, leaf in _by_path(arrays).items()}
        content |= {f"blobs/{name}": np.frombuffer(blob, np.uint8) for name, blob in blobs.items()}
        if self._thread is None:
            self._write(step, content)
        else:
            self._pending = self._thread.submit(self._write, step, content)

    def restore(self, step: int, abstract: Tree, /) -> tuple[Tree, Mapping[str, bytes]]:
        """The arrays, placed, and the bytes; ValueError when another state was saved."""
        tree = self.restore_part(step, abstract)
        with np.load(self._path(step)) as saved:
            arrays, blobs = (
                {n.removeprefix(f"{kind}/") for n in saved.files if n.startswith(kind)} for kind in ("arrays", "blobs")
            )
            if more := arrays - set(_by_path(abstract)):
                raise ValueError(f"{self._path(step)} has {sorted(more)}, which nobody asks for")
            return tree, {name: saved[f"blobs/{name}"].tobytes() for name in blobs}

    def restore_part(self, step: int, abstract: Tree, /) -> Tree:
        """Only the arrays that ``abstract`` has."""
        self.wait()
        if not self._path(step).exists():
            raise ValueError(f"no checkpoint of step {step} in {self._folder}; there are {self._steps()}")
        with np.load(self._path(step)) as saved:

            def place(path: tuple[object, ...], want: jax.ShapeDtypeStruct) -> jax.Array:
                name = f"arrays/{jax.tree_util.keystr(path, simple=True, separator='/')}"
                if name not in saved.files:
                    raise ValueError(f"{self._path(step)} has no {name}")
                have = saved[name]
                if have.dtype.kind == "V":  # numpy doesn't know the name of a bfloat16
                    have = have.view(want.dtype)
                if have.shape != want.shape or have.dtype != want.dtype:
                    raise ValueError(f"{name} is {have.dtype}{have.shape}, wanted {want.dtype}{want.shape}")
                placed: jax.Array = jax.device_put(have, want.sharding)
                return placed

            return cast("Tree", jax.tree_util.tree_map_with_path(place, abstract))

    def latest(self) -> int | None:
        """The newest step."""
        return max(self._steps(), default=None)

    def wait(self) -> None:
        """Until the save under way is complete."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Wait, and end the thread."""
        self.wait()
        if self._thread is not None:
            self._thread.shutdown()

    def _path(self, step: int) -> Path:
        return self._folder / f"{step}.npz"

    def _steps(self) -> list[int]:
        return sorted(int(file.stem) for file in self._folder.glob("*.npz") if file.stem.isdecimal())

    def _write(self, step: int, content: Mapping[str, np.ndarray]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f"saving-{step}.npz"
        write = cast("Callable[..., None]", np.savez_compressed if self._cfg.compress else np.savez)
        write(draft, **content)
        os.replace(draft, self._path(step))
        every = self._cfg.keep_every
        for old in self._steps()[: -self._cfg.keep_last]:
            if every is None or old % every:
                self._path(old).unlink()


def _by_path(tree: object) -> dict[str, object]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


_Npz = NpzCheckpointer.Config
VARIANTS: Mapping[str, NpzCheckpointer.Config] = {
    "3": _Npz(),
    "1": _Npz(keep_last=1),
    "10": _Npz(keep_last=10),
    "3, compressed": _Npz(compress=True),
    "1, compressed": _Npz(keep_last=1, compress=True),
    "3 in the background": _Npz(background=True),
    "1 in the background": _Npz(keep_last=1, background=True),
    "3 in the background, compressed": _Npz(background=True, compress=True),
    "3 and every 1,000th": _Npz(keep_every=1_000),
    "3 and every 1,000th in the background": _Npz(keep_every=1_000, background=True),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """States go to files of numpy's."""
    return replace(tree, OrbaxCheckpointer, VARIANTS[variant])
