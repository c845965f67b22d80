"""Where the bytes of a record lie in an ArrayRecord file, so that a part of it can be read without the rest, and without a copy.

Uncompressed records lie in the file as they are, but for a header of 24 bytes at every multiple of 64 KiB (Riegeli's blocks,
https://github.com/google/riegeli/blob/master/doc/riegeli_records_file_format.md). Nothing more is taken for granted: ``locate`` looks for a
record's bytes in the finished file, and tells a place only where it has found all of them.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

NOWHERE = -1
"""The place of a record whose bytes don't lie in the file as they are."""

_BLOCK = 2**16
_HEADER = 24
_ROOM = _BLOCK - _HEADER
_KEY = 32  # bytes by which a record is looked for
_BETWEEN = 4_096  # how far it may lie behind the one before: a record's own header is much smaller


def locate(file: Path, records: Iterable[bytes]) -> Iterator[int]:
    """Where each of the records that were written to ``file`` one after another begins, or NOWHERE."""
    data = mapped(file)
    end = 0
    for record in records:
        place = data.find(record[:_KEY], end, end + _BETWEEN)
        if place >= 0 and raw(data, place, 0, len(record)) == record:
            end = _place_of(place, len(record))
            yield place
        else:
            end += len(record) + len(record) // _ROOM * _HEADER  # at least
            yield NOWHERE


def mapped(file: Path) -> mmap.mmap:
    """A file, mapped into memory. Raises OSError."""
    with file.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def raw(data: mmap.mmap, place: int, begin: int, end: int) -> bytes | memoryview:
    """The bytes ``begin`` to ``end`` of the record at ``place``. Fewer where the file ends before."""
    if begin == end:
        return b""
    first, last = _place_of(place, begin), _place_of(place, end - 1) + 1
    if first // _BLOCK == (last - 1) // _BLOCK:
        return memoryview(data)[first:last]
    runs = []
    while first < last:
        stop = min(last, (first // _BLOCK + 1) * _BLOCK)
        runs.append(data[first:stop])
        first = stop + _HEADER
    return b"".join(runs)


def _place_of(place: int, offset: int) -> int:
    """Where in the file byte ``offset`` of a record at ``place`` is."""
    room = _BLOCK - place % _BLOCK
    if offset < room:
        return place + offset
    blocks, rest = divmod(offset - room, _ROOM)
    return place + room + blocks * _BLOCK + _HEADER + rest
