"""Which files a list of paths means.

A file that is named is taken, whatever it is called. A folder is walked in the order of its names, the same on every
machine, and gives the files with an ending that is known to hold text; hidden names and ``__pycache__`` are left out, and files
without a byte (``__init__.py``, say) are listed apart. A file that is reached twice counts once. A URL (``s3://…``) is
a file or a folder elsewhere. A folder that ``datasets`` saved is a folder of Arrow files; one of several splits is refused, so
that nobody trains on a test split by accident.
"""

from __future__ import annotations

import difflib
import json
import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._errors import DataError
from ._remote import File, find_remote, is_url, size_of

TEXT_ENDINGS = (".txt", ".md", ".py")
RECORD_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet", ".arrow", ".arrayrecord", ".array_record")
KNOWN_ENDINGS = TEXT_ENDINGS + RECORD_ENDINGS

_SPLITS = "dataset_dict.json"  # what ``datasets.DatasetDict.save_to_disk`` leaves beside the folders of its splits
_PREPARED = ("ax-corpus.json", "ax-plan.json")  # in what ``prepare_corpus`` made, or didn't finish
_NOT_OWN_SOURCE = frozenset(
    {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "lib-dynload"}
)


@dataclass(frozen=True)
class Files:
    """The files to read, in order; and the empty ones met in folders, which nobody asked for by name."""

    paths: tuple[File, ...]
    empty: tuple[File, ...]


def find_files(paths: Sequence[str | os.PathLike[str]]) -> Files:
    """The files that ``paths`` mean, each once. Raises DataError for a missing path or a folder without text."""
    found: dict[File, File] = {}
    empty: list[File] = []
    for given in paths:
        named, inside = _meant(os.fspath(given))
        filled = [file for file in inside if not _is_empty(file)]
        if not named and not filled:
            among = f", {len(inside)} empty ones aside" if inside else ""
            raise DataError(f"{given}: no files that end in {' '.join(KNOWN_ENDINGS)} in this folder{among}")
        if not named:
            empty += [file for file in inside if _is_empty(file)]
        for file in inside if named else filled:
            found.setdefault(file.resolve() if isinstance(file, Path) else file, file)
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


def _meant(given: str) -> tuple[bool, list[File]]:
    """Whether a path names one file, and the files: that one, or those in the folder."""
    if is_url(given):
        remote = list(find_remote(given, KNOWN_ENDINGS))
        return [file.url for file in remote] == [given], [*remote]
    path = Path(given).expanduser()
    if path.is_dir():
        _refuse_splits(path)
        if any((path / name).is_file() for name in _PREPARED):
            raise DataError(
                f"{path}: a prepared corpus, finished or not, whose files aren't text: open it with PreparedText"
            )
        return False, [*_walk(path, frozenset({"__pycache__"}), KNOWN_ENDINGS)]
    if path.exists():
        return True, [path]
    raise DataError(_missing(path))


def _refuse_splits(folder: Path) -> None:
    listing = folder / _SPLITS
    if listing.is_file():
        splits = [str(folder / name) for name in json.loads(listing.read_text(encoding="utf-8"))["splits"]]
        if len(splits) > 1:
            raise DataError(f"{folder}: a dataset of several splits; choose: {', '.join(splits)}")


def _walk(root: Path, excluded: frozenset[str], endings: tuple[str, ...]) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename}: can't list this folder: {error.strerror}") from error

    for folder, subfolders, names in os.walk(root, onerror=fail):
        subfolders[:] = sorted(name for name in subfolders if name not in excluded and not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(endings) and not name.startswith("."):
                yield Path(folder, name)


def _is_empty(file: File) -> bool:
    # What can't be asked (a broken link, say) is not empty: reading it will tell what is wrong.
    if isinstance(file, Path):
        return file.exists() and size_of(file) == 0
    return file.size == 0


def _missing(path: Path) -> str:
    siblings = os.listdir(path.parent) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, siblings)
    hint = f"; near it: {', '.join(near)}" if near else ""
    return f"{path}: no such file or folder (looked in {path.parent.resolve()}){hint}"
