"""ArrayRecord: bytes with random access (https://github.com/google/array_record), what Grain reads.

Readers are opened when first asked and don't travel between processes: a copy in another process opens its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from ._errors import BadRecordError, Reason
from ._read_bytes import decode
from ._record import Record
from ._remote import File, RemoteFile, local_copy_needed

WRITER_OPTIONS = "group_size:1,uncompressed"
"""One record a chunk, so that reading one reads no other; and as it is, so that a part of it can be read."""

Parse = Callable[[bytes], Mapping[str, object]]
"""Makes fields of a record's bytes; raises ValueError for bad ones."""


@final
class ArrayRecordSource:
    """The records of an ArrayRecord file: each is a text in UTF-8, or what ``parse`` makes of its bytes.

    Raises BadRecordError when the file can't be read, and with the record's number when a record can't.
    """

    def __init__(self, file: File, *, text_field: str = "text", parse: Parse | None = None) -> None:
        if isinstance(file, RemoteFile):
            raise local_copy_needed(file, "ArrayRecord files")
        self._path = str(file)
        self._text_field = text_field
        self._parse = parse
        self._file = ArrayRecordFile(file)
        if len(self) == 0:
            raise BadRecordError(self._path, None, Reason.EMPTY_FILE, "no records in it")

    def __len__(self) -> int:
        return len(self._file)

    def __getitem__(self, index: int, /) -> Record:
        data = self._file[index]
        if self._parse is None:
            return Record({self._text_field: decode(data, self._path, index + 1)}, self._path, index + 1)
        try:
            return Record(self._parse(data), self._path, index + 1)
        except ValueError as error:
            raise BadRecordError(self._path, index + 1, Reason.CORRUPT, str(error)) from error


@final
class ArrayRecordFile:
    """The bytes of the records of an ArrayRecord file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: Any = None
        self._length = int(self._open().num_records())

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int, /) -> bytes:
        if not 0 <= index < self._length:
            raise IndexError(f"{self._path}: {len(self)} records, asked for {index}")
        try:
            record: bytes = (self._reader or self._open()).read([index])[0]
        except RuntimeError as error:
            raise BadRecordError(str(self._path), index + 1, Reason.CORRUPT, str(error)) from error
        return record

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_reader": None}

    def _open(self) -> Any:
        if self._reader is None:
            # Imported here: it takes long to load. It ships no types.
            from array_record.python.array_record_module import ArrayRecordReader  # type: ignore[import-untyped]

            # Nothing is read ahead: the order is random. A reader may be used by many threads.
            reader = ArrayRecordReader(
                str(self._path), options="readahead_buffer_size:0", file_reader_buffer_size=32_768
            )
            if not reader.ok():
                reason = Reason.CORRUPT if self._path.is_file() else Reason.UNREADABLE
                try:
                    reader.close()
                except RuntimeError as error:
                    raise BadRecordError(str(self._path), None, reason, f"not an ArrayRecord file: {error}") from error
            self._reader = reader
        return self._reader
