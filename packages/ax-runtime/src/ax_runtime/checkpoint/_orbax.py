"""Checkpoints in Orbax's format, written in the background.

``save`` copies the arrays to host memory and returns; one background thread writes them by Orbax into a folder of its
own, adds the blobs and the checksums, renames the folder to the step's number, and only then deletes steps that are no
longer kept (``_steps`` tells why no kill can leave half a step). A complete step is

    120/
      arrays/         Orbax's: `orbax.checkpoint.StandardCheckpointer().restore(path / "arrays")` reads it without us
      blobs/<name>    the bytes, as they came
      digests.json    size and checksum of every file

Renames are atomic against a kill of the process; after a power cut, checksums tell whether the disk kept its word.

Of several processes each writes the shards that it holds, into one folder that all of them see, and the checksums of its part of
the files. When all have done so, and only then, the first one renames. So a step is complete for all or for none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, final
from urllib.parse import quote, unquote

import ax_config
import jax

from ._digests import Part, find_damage, join_digests, write_digests
from ._errors import CheckpointError, os_reason
from ._processes import is_first, is_true_anywhere, meet, occasion, of_first
from ._quiet import silence_orbax
from ._steps import begin, commit, complete_steps, discard, draft_of, remove_leftovers, superseded
from ._structure import check_structure, expected, place

Tree = TypeVar("Tree")

_NONE = -1


@final
class OrbaxCheckpointer:
    """Keeps states by step in ``folder``. Fits a trainer's ``Checkpointer``.

    Any number of checkpointers may read a folder, also while a job writes to it; one may save. A process that ends
    without ``wait`` or ``close`` (``contextlib.closing`` is handy) loses the save under way, and nothing else.

    In a job of several processes (``jax.distributed``) ``folder`` is one that all of them see, and all of them call each method, in the
    same order. A state may be restored by any number of processes, whatever number saved it.
    """

    class Config(ax_config.Config["OrbaxCheckpointer"]):
        """Which checkpoints are kept: the newest ``keep_last``, and each at a multiple of ``keep_every`` for ever."""

        keep_last: int = 3
        keep_every: int | None = None

    def __init__(self, cfg: Config, /, *, folder: str | os.PathLike[str]) -> None:
        if cfg.keep_last < 1:
            raise ValueError(f"keep_last must be at least 1, got {cfg.keep_last}: the newest checkpoint is always kept")
        if cfg.keep_every is not None and cfg.keep_every < 1:
            raise ValueError(f"keep_every must be a positive number of steps or None, got {cfg.keep_every}")
        # Imported here, not above: it takes half a second, which whoever only reads a config should not wait for.
        # Orbax ships no types.
        from orbax.checkpoint import AsyncCheckpointer, PyTreeCheckpointHandler  # type: ignore[import-untyped]

        silence_orbax()
        self._cfg = cfg
        self._folder = Path(folder).absolute()
        # Trained numbers are noise: compression would take a third more CPU time from training to save 8 % of the disk.
        self._orbax = AsyncCheckpointer(PyTreeCheckpointHandler(use_compression=False))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._cleaned = False

    def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None:
        """Start saving; the arrays may be donated once this returns. Waits for the save before, should it still run.

        A step that exists already is replaced. Raises CheckpointError when this save can't begin, or when the one
        before failed since the last call; earlier checkpoints are intact then.
        """
        from orbax.checkpoint.args import PyTreeSave  # type: ignore[import-untyped]

        self.wait()
        blobs = dict(blobs)
        try:
            draft = self._begin(step)
            self._orbax.save(draft / "arrays", args=PyTreeSave(arrays))
        except OSError as error:
            raise self._failed(step, error) from error
        self._pending = self._thread.submit(self._finish, step, draft, blobs, occasion())

    def restore(self, step: int, abstract: Tree, /) -> tuple[Tree, Mapping[str, bytes]]:
        """The whole state of ``step``, bit for bit, placed as the ``jax.ShapeDtypeStruct`` leaves of ``abstract`` say.

        A leaf without sharding goes to the default device. Raises ValueError that names the parameters whose shape,
        dtype or presence differs, CheckpointError when the checkpoint is missing or damaged.
        """
        return self._restore(step, abstract, whole=True), self._read_blobs(step)

    def restore_part(self, step: int, abstract: Tree, /) -> Tree:
        """Only those arrays that ``abstract`` has, others are not read: ``restore_part(step, {"params": specs})``.

        ``abstract`` is a tree of ``jax.ShapeDtypeStruct`` as in ``restore``, with whatever it leaves out.
        """
        return self._restore(step, abstract, whole=False)

    def latest(self) -> int | None:
        """The newest complete step, or None."""
        steps = complete_steps(self._folder)
        newest = of_first(steps[-1] if steps else _NONE)  # Others may see a shared folder as it was a moment ago.
        return None if newest == _NONE else newest

    def wait(self) -> None:
        """Return when all saves are complete; raises CheckpointError when one failed."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Wait, and end the background threads."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()
            self._orbax.close()

    def _begin(self, step: int) -> Path:
        """The folder that the step is written into, made by the first process, for which Orbax in the others waits."""
        if not is_first():
            return draft_of(self._folder, step)
        if not self._cleaned:  # Not at construction: whoever only reads must not touch a running job's files.
            remove_leftovers(self._folder)
            self._cleaned = True
        return begin(self._folder, step)

    def _finish(self, step: int, draft: Path, blobs: Mapping[str, bytes], number: int) -> None:
        """What the background thread does while Orbax writes, and after."""
        mine = Part(jax.process_index(), jax.process_count())
        try:
            self._orbax.wait_until_finished()
            if is_first():
                (draft / "blobs").mkdir()
                for name, content in blobs.items():
                    (draft / "blobs" / quote(name, safe="")).write_bytes(content)
            meet(f"written-{number}")
            write_digests(draft, mine)
            meet(f"digested-{number}")
            if is_first():
                join_digests(draft, mine.size)
                commit(draft)
            meet(f"committed-{number}")
        except Exception as error:  # Orbax and tensorstore raise many kinds; each means that this step isn't saved.
            if (
                mine.size == 1
            ):  # Half a step is no use, and the disk may be full; others may still be writing to theirs.
                remove_leftovers(self._folder)
            raise self._failed(step, error) from error
        kept = self._cfg
        if is_first():
            for old in superseded(complete_steps(self._folder), keep_last=kept.keep_last, keep_every=kept.keep_every):
                discard(self._folder / str(old))

    def _restore(self, step: int, abstract: Tree, *, whole: bool) -> Tree:
        from orbax.checkpoint import Checkpointer, PyTreeCheckpointHandler
        from orbax.checkpoint.args import PyTreeRestore
        from orbax.checkpoint.checkpoint_utils import construct_restore_args  # type: ignore[import-untyped]

        self.wait()
        self._verify(step)
        path = self._folder / str(step) / "arrays"
        placed = place(abstract)
        with Checkpointer(PyTreeCheckpointHandler()) as reader:
            saved = reader.metadata(path).item_metadata.tree
            check_structure(saved, placed, where=f"checkpoint {path.parent}", whole=whole)
            try:
                restored: Tree = reader.restore(
                    path,
                    args=PyTreeRestore(
                        item=placed, restore_args=construct_restore_args(placed), partial_restore=not whole
                    ),
                )
            except Exception as error:  # As above: whatever the kind, the files are whole and yet can't be read.
                raise CheckpointError(f"can't read checkpoint {path.parent}: {error}") from error
        return expected(restored, placed, where=f"checkpoint {path.parent}")

    def _read_blobs(self, step: int) -> dict[str, bytes]:
        folder = self._folder / str(step) / "blobs"
        return {unquote(file.name): file.read_bytes() for file in sorted(folder.iterdir())}

    def _verify(self, step: int) -> None:
        """Raise unless the files of ``step`` are as they were written."""
        steps = complete_steps(self._folder)
        if step not in steps:
            raise CheckpointError(f"no checkpoint of step {step} in {self._folder}; its steps are {steps}")
        mine = find_damage(self._folder / str(step), Part(jax.process_index(), jax.process_count()))
        if not is_true_anywhere(mine is not None):
            return
        damage = mine or find_damage(self._folder / str(step))
        earlier = (old for old in reversed(steps) if old < step and find_damage(self._folder / str(old)) is None)
        good = next(earlier, None)
        raise CheckpointError(
            f"checkpoint {self._folder / str(step)} is damaged: {damage}. "
            + (
                "No earlier checkpoint is good."
                if good is None
                else f"The newest good one before it is step {good}: delete the damaged folder to continue from there."
            )
        )

    def _failed(self, step: int, error: Exception) -> CheckpointError:
        intact = complete_steps(self._folder)
        return CheckpointError(
            f"can't save step {step} in {self._folder}: {os_reason(error) or error}. Intact are the steps {intact}"
        )
