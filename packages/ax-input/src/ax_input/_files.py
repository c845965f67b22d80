"""Which files a list of paths means.

A file that is named is taken, whatever it is called. A folder is walked in the order of its names, the same on every
machine, and gives the files with an ending that is known to hold text; hidden names and ``__pycache__`` are left out, and files
without a byte (``__init__.py``, say) are listed apart. A file that is reached twice counts once.
"""

from __future__ import annotations

import difflib
import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._errors import DataError

TEXT_ENDINGS = (".txt", ".md", ".py")
RECORD_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
KNOWN_ENDINGS = TEXT_ENDINGS + RECORD_ENDINGS

_NOT_OWN_SOURCE = frozenset(
    {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "lib-dynload"}
)


@dataclass(frozen=True)
class Files:
    """The files to read, in order; and the empty ones met in folders, which nobody asked for by name."""

    paths: tuple[Path, ...]
    empty: tuple[Path, ...]


def find_files(paths: Sequence[str | os.PathLike[str]]) -> Files:
    """The files that ``paths`` mean, each once. Raises DataError for a missing path or a folder without text."""
    found: dict[Path, Path] = {}
    empty: list[Path] = []
    for given in paths:
        path = Path(given).expanduser()
        if path.is_dir():
            inside = list(_walk(path, frozenset({"__pycache__"}), KNOWN_ENDINGS))
            filled = [file for file in inside if not _is_empty(file)]
            if not filled:
                among = f", {len(inside)} empty ones aside" if inside else ""
                raise DataError(f"{path}: no files that end in {' '.join(KNOWN_ENDINGS)} in this folder{among}")
            empty += [file for file in inside if _is_empty(file)]
        elif path.exists():
            filled = [path]
        else:
            raise DataError(_missing(path))
        for file in filled:
            found.setdefault(file.resolve(), file)
    return Files(tuple(found.values()), tuple(empty))


def standard_library_paths() -> list[Path]:
    """The source files of the running interpreter's own standard library: no tests, no installed packages, no empty files."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [file for file in _walk(root, _NOT_OWN_SOURCE, (".py",)) if not _is_empty(file)]
    if not files:
        raise DataError(
            f"{root}: this interpreter has no source of its standard library there; give paths to text of your own"
        )
    return files


def _walk(root: Path, excluded: frozenset[str], endings: tuple[str, ...]) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename}: can't list this folder: {error.strerror}") from error

    for folder, subfolders, names in os.walk(root, onerror=fail):
        subfolders[:] = sorted(name for name in subfolders if name not in excluded and not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(endings) and not name.startswith("."):
                yield Path(folder, name)


def _is_empty(file: Path) -> bool:
    try:
        return file.stat().st_size == 0
    except OSError:  # a broken link, say: reading it will tell what is wrong
        return False


def _missing(path: Path) -> str:
    siblings = os.listdir(path.parent) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, siblings)
    hint = f"; near it: {', '.join(near)}" if near else ""
    return f"{path}: no such file or folder (looked in {path.parent.resolve()}){hint}"
