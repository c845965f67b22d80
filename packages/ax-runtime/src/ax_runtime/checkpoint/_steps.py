"""The folder of checkpoints: which steps are in it, how one enters it, how one leaves it.

    checkpoints/
      120/  140/         complete steps, and nothing else is named by a bare number
      saving-160/        being written
      discarded-100/     being deleted

A step enters by one rename when it is complete and leaves by one rename before its files go. So a kill at any moment
leaves complete steps and leftovers, which are told apart by their names.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

_SAVING = "saving-"
_DISCARDED = "discarded-"


def complete_steps(folder: Path) -> list[int]:
    """The steps in ``folder``, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal() and entry.is_dir())


def draft_of(folder: Path, step: int) -> Path:
    """Where ``step`` is written."""
    return folder / f"{_SAVING}{step}"


def begin(folder: Path, step: int) -> Path:
    """A fresh folder to write ``step`` into."""
    draft = draft_of(folder, step)
    if draft.exists():
        shutil.rmtree(draft)
    draft.mkdir(parents=True)
    return draft


def commit(draft: Path) -> None:
    """Make the step complete. One that stood there before is replaced."""
    complete = draft.with_name(draft.name.removeprefix(_SAVING))
    if complete.exists():
        discard(complete)
    draft.rename(complete)


def discard(complete: Path) -> None:
    """Delete a step such that it is never seen in part."""
    leftover = complete.with_name(f"{_DISCARDED}{complete.name}")
    if leftover.exists():
        shutil.rmtree(leftover)
    complete.rename(leftover)
    shutil.rmtree(leftover)


def remove_leftovers(folder: Path) -> None:
    """Delete what a killed process left half-written or half-deleted."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.name.startswith((_SAVING, _DISCARDED)):
            shutil.rmtree(entry)


def superseded(steps: Iterable[int], *, keep_last: int, keep_every: int | None) -> list[int]:
    """Of ``steps`` those that need not be kept: neither among the last ones nor a multiple of ``keep_every``."""
    return [step for step in sorted(steps)[:-keep_last] if keep_every is None or step % keep_every != 0]
