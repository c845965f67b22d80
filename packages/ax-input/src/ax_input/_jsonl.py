"""JSON lines: an object a line.

A file on this machine is mapped into memory, and only where its lines begin is kept: 16 bytes each, whatever their length. Gzipped
and remote files are held in memory.
"""

from __future__ import annotations

import array
import codecs
import gzip
import io
import json
import mmap
import zlib
from pathlib import Path
from typing import final

from ._errors import BadRecordError, Reason
from ._read_bytes import decode, read_bytes
from ._record import Record
from ._remote import File


@final
class JsonlSource:
    """The objects of a file of JSON lines, gzipped or not. Blank lines are no records."""

    def __init__(self, file: File) -> None:
        self._path = str(file)
        self._data = _bytes_of(file)
        self._starts = array.array("q")
        self._numbers = array.array("q")
        start = len(codecs.BOM_UTF8) if self._data[: len(codecs.BOM_UTF8)] == codecs.BOM_UTF8 else 0
        lines = self._data if isinstance(self._data, mmap.mmap) else io.BytesIO(self._data)
        lines.seek(start)
        for number, line in enumerate(iter(lines.readline, b""), 1):
            if not line.isspace():
                self._starts.append(start)
                self._numbers.append(number)
            start += len(line)
        if not self._starts:
            raise BadRecordError(self._path, None, Reason.EMPTY_FILE, "no records in it")

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int, /) -> Record:
        number = self._numbers[index]
        start = self._starts[index]
        end = self._data.find(b"\n", start)
        text = decode(self._data[start : end if end >= 0 else len(self._data)], self._path, number)
        try:
            fields: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadRecordError(self._path, number, Reason.CORRUPT, f"not JSON: {error}") from error
        if not isinstance(fields, dict):
            detail = f"wanted an object with named fields, got {type(fields).__name__}"
            raise BadRecordError(self._path, number, Reason.WRONG_TYPE, detail)
        return Record(fields, self._path, number)


def _bytes_of(file: File) -> bytes | mmap.mmap:
    zipped = file.name.lower().endswith(".gz")
    if isinstance(file, Path) and not zipped:
        try:
            with file.open("rb") as opened:
                return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # a pipe, say, or no bytes: reading it tells
            return read_bytes(file)
    data = read_bytes(file)
    if zipped:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise BadRecordError(str(file), None, Reason.CORRUPT, f"not a complete gzip file: {error}") from error
    return data
