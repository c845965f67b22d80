"""Replace a file's content so that a reader, or a process that starts after a kill, sees all of it or none of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` beside ``path``, bring it to the disk, and rename it over ``path``.

    Raises OSError and leaves ``path`` as it was when the disk is full or not writable.
    """
    # One fixed name, not a random one: what a kill leaves behind is overwritten by the next write, not piled up.
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """Bring the folder's list of names to the disk: without it, a power cut may undo the rename."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
