"""Files as sources of documents.

``open_source`` picks by ending. Each source has random access and raises ``BadRecordError`` when asked for a record that
can't be used; a file that can't be opened at all raises it at once. What to do about a bad record is not the source's business.

JSON lines are held in memory (decompressed); Parquet is read by row group.
"""

from __future__ import annotations

import bisect
import codecs
import gzip
import importlib.util
import itertools
import json
import zlib
from pathlib import Path
from typing import final

from ._document import Document
from ._errors import BadRecordError, DataError, Reason
from .protocols import Source


def open_source(path: Path, *, text_field: str = "text") -> Source[Document]:
    """The documents of one file. Unknown endings are read as plain text."""
    name = path.name.lower()
    if name.endswith((".jsonl", ".jsonl.gz")):
        return JsonlSource(path, text_field=text_field)
    if name.endswith(".parquet"):
        return ParquetSource(path, text_field=text_field)
    return TextSource(path)


@final
class TextSource:
    """One file of plain UTF-8 text: one document."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int, /) -> Document:
        if index != 0:
            raise IndexError(f"{self._path}: one document, asked for {index}")
        data = _read(self._path).removeprefix(codecs.BOM_UTF8)
        if not data:
            raise BadRecordError(str(self._path), None, Reason.EMPTY_FILE, "nothing but a byte order mark")
        return Document(_decode(data, str(self._path), None), str(self._path))


@final
class JsonlSource:
    """JSON lines, gzipped or not: a document an object, its text in ``text_field``. Blank lines are no records."""

    def __init__(self, path: Path, *, text_field: str = "text") -> None:
        self._path = str(path)
        self._text_field = text_field
        data = _read(path)
        if path.name.lower().endswith(".gz"):
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise BadRecordError(self._path, None, Reason.CORRUPT, f"not a complete gzip file: {error}") from error
        lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
        self._records = [(number, line) for number, line in enumerate(lines, 1) if line and not line.isspace()]
        if not self._records:
            raise BadRecordError(self._path, None, Reason.EMPTY_FILE, "no records in it")

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int, /) -> Document:
        number, line = self._records[index]
        text = _decode(line, self._path, number)
        try:
            record: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadRecordError(self._path, number, Reason.CORRUPT, f"not JSON: {error}") from error
        if not isinstance(record, dict):
            detail = f"wanted an object with the field {self._text_field!r}, got {type(record).__name__}"
            raise BadRecordError(self._path, number, Reason.WRONG_TYPE, detail)
        if self._text_field not in record:
            raise BadRecordError(self._path, number, Reason.MISSING_FIELD, _no_field(self._text_field, list(record)))
        return Document(_checked(record[self._text_field], self._text_field, self._path, number), self._path, number)


@final
class ParquetSource:
    """Rows of a Parquet file, their text in the column ``text_field``. Needs the extra ``ax-input[parquet]``."""

    def __init__(self, path: Path, *, text_field: str = "text") -> None:
        if importlib.util.find_spec("pyarrow") is None:
            raise DataError(f"{path}: reading Parquet needs pyarrow: pip install 'ax-input[parquet]'")
        # Imported here: pyarrow is an extra, and takes long to load. It ships no types.
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]

        self._path = str(path)
        self._text_field = text_field
        self._arrow_errors: tuple[type[Exception], ...] = (pyarrow.ArrowException, OSError)
        try:
            self._file = pyarrow.parquet.ParquetFile(path, memory_map=True)
        except self._arrow_errors as error:
            raise BadRecordError(self._path, None, Reason.CORRUPT, f"not a Parquet file: {error}") from error
        metadata = self._file.metadata
        columns = self._file.schema_arrow.names
        if text_field not in columns:
            raise BadRecordError(self._path, None, Reason.MISSING_FIELD, _no_field(text_field, columns))
        sizes = (metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        self._ends = list(itertools.accumulate(sizes))
        if len(self) == 0:
            raise BadRecordError(self._path, None, Reason.EMPTY_FILE, "no rows in it")
        self._group = -1

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int, /) -> Document:
        if not 0 <= index < len(self):
            raise IndexError(f"{self._path}: {len(self)} rows, asked for {index}")
        group = bisect.bisect_right(self._ends, index)
        number = index + 1
        try:
            if group != self._group:
                self._column = self._file.read_row_group(group, columns=[self._text_field])[self._text_field]
                self._group = group
            value: object = self._column[index - self._ends[group]].as_py()
        except UnicodeDecodeError as error:
            raise BadRecordError(self._path, number, Reason.UNDECODABLE, f"not UTF-8: {error}") from error
        except self._arrow_errors as error:
            raise BadRecordError(self._path, number, Reason.CORRUPT, str(error)) from error
        return Document(_checked(value, self._text_field, self._path, number), self._path, number)


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadRecordError(str(path), None, Reason.UNREADABLE, error.strerror or str(error)) from error
    if not data:
        raise BadRecordError(str(path), None, Reason.EMPTY_FILE, "0 bytes")
    return data


def _decode(data: bytes, path: str, line: int | None) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if line is None:
            line = data.count(b"\n", 0, error.start) + 1
        detail = f"byte 0x{data[error.start]:02x} is not UTF-8 ({error.reason}); convert the file to UTF-8"
        raise BadRecordError(path, line, Reason.UNDECODABLE, detail) from error


def _checked(value: object, text_field: str, path: str, record: int) -> str:
    if not isinstance(value, str):
        detail = f"the field {text_field!r} holds {type(value).__name__}, wanted a string"
        raise BadRecordError(path, record, Reason.WRONG_TYPE, detail)
    if not value:
        raise BadRecordError(path, record, Reason.EMPTY_TEXT, f"the field {text_field!r} is empty")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            detail = f"the field {text_field!r} holds half a surrogate pair at character {error.start}"
            raise BadRecordError(path, record, Reason.UNDECODABLE, detail) from error
    return value


def _no_field(wanted: str, present: list[str]) -> str:
    return f"no field {wanted!r}; there are: {', '.join(map(repr, present)) or 'none'} (choose one by text_field)"
