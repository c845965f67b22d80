"""Files in folders that are named after what is in them: ``digits/7/0042.png`` is a 7."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ._errors import BadRecordError, DataError, Reason


class LabelledFiles:
    """The files below ``folder`` with one of ``endings``, in the order of their paths; the class of each is the folder that it is in.

    Raises DataError when there are none.
    """

    def __init__(self, folder: str | Path, *, endings: tuple[str, ...], classes: tuple[str, ...] = ()) -> None:
        root = Path(folder).expanduser()
        if not root.is_dir():
            raise DataError(f"{root}: no such folder")
        there = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
        self.classes = classes or tuple(there)
        """The names of the classes; a label is a place in it."""
        unknown = [name for name in there if name not in self.classes]
        if unknown:
            raise DataError(f"{root}: {', '.join(unknown)} is none of the classes {', '.join(self.classes)}")
        found = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((root / name).rglob("*"))
            if path.name.lower().endswith(endings) and not path.name.startswith(".")
        ]
        if not found:
            raise DataError(f"{root}: no files that end in {' '.join(endings)} in folders that name their classes")
        self.paths = [path for path, _ in found]
        self.labels = [label for _, label in found]
        digest = hashlib.blake2b(repr(self.classes).encode(), digest_size=16)
        for path in self.paths:
            digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        self.fingerprint = digest.hexdigest()
        """Changes with the names and sizes of the files; their content isn't read for it."""

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> tuple[Path, bytes, int]:
        """The path, the bytes and the label of a file. Raises BadRecordError when it can't be read."""
        if not 0 <= index < len(self):
            raise IndexError(f"{len(self)} files, asked for {index}")
        path = self.paths[index]
        try:
            return path, path.read_bytes(), self.labels[index]
        except OSError as error:
            raise BadRecordError(str(path), None, Reason.UNREADABLE, error.strerror or str(error)) from error
