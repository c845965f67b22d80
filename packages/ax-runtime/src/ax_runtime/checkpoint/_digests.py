"""Checksums of a checkpoint's files, so that bits that flipped on the disk are found before they are trained on.

Orbax's index has checksums, its array data has none. CRC-32 finds damage, not forgery, and reads more than a gigabyte a
second.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

_NAME = "digests.json"
_CHUNK = 1 << 22


def write_digests(folder: Path) -> None:
    """Record size and checksum of every file below ``folder``."""
    files = {str(file.relative_to(folder)): _digest(file) for file in sorted(folder.rglob("*")) if file.is_file()}
    (folder / _NAME).write_text(json.dumps({"algorithm": "crc32", "files": files}, indent=1) + "\n")


def find_damage(folder: Path) -> str | None:
    """What is wrong with the files below ``folder``, None when they are as they were written."""
    try:
        files: dict[str, object] = json.loads((folder / _NAME).read_bytes())["files"]
        for name, expected in files.items():
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


def _digest(file: Path) -> list[int]:
    size, checksum = 0, 0
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
    return [size, checksum]
