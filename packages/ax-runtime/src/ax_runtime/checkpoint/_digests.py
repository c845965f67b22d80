"""Checksums of a checkpoint's files, so that bits that flipped on the disk are found before they are trained on.

Orbax's index has checksums, its array data has none. CRC-32 finds damage, not forgery, and reads more than a gigabyte a
second. Several processes share the work: each takes its part of the files.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import NamedTuple

_NAME = "digests.json"
_PART = "digests-{}.json"
_CHUNK = 1 << 22


class Part(NamedTuple):
    """Which files: those of one process among several."""

    rank: int
    size: int


ALL = Part(0, 1)


def write_digests(folder: Path, part: Part = ALL) -> None:
    """Record size and checksum of every file of ``part`` below ``folder``."""
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    names = [name for name in names if not name.startswith("digests")]
    _write(folder / _PART.format(part.rank), {name: _digest(folder / name) for name in names[part.rank :: part.size]})


def join_digests(folder: Path, count: int) -> None:
    """Make one record of those of all parts."""
    files: dict[str, object] = {}
    parts = [folder / _PART.format(index) for index in range(count)]
    for part in parts:
        files |= json.loads(part.read_bytes())["files"]
    _write(folder / _NAME, dict(sorted(files.items())))
    for part in parts:
        part.unlink()


def find_damage(folder: Path, part: Part = ALL) -> str | None:
    """What is wrong with the files of ``part`` below ``folder``, None when they are as they were written."""
    try:
        files: dict[str, object] = json.loads((folder / _NAME).read_bytes())["files"]
        for name, expected in list(files.items())[part.rank :: part.size]:
            found = _digest(folder / name)
            if found != expected:
                return f"{name} has size and checksum {found}, written were {expected}"
    except FileNotFoundError as error:
        return f"{error.filename} is missing"
    except OSError as error:
        return f"{error.filename} can't be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{_NAME} is damaged: {error}"
    return None


def _write(file: Path, files: dict[str, object]) -> None:
    file.write_text(json.dumps({"algorithm": "crc32", "files": files}, indent=1) + "\n")


def _digest(file: Path) -> list[int]:
    size, checksum = 0, 0
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
    return [size, checksum]
