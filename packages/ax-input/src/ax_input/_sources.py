"""Files as sources of records and of documents.

``open_records`` picks by ending. Each source has random access and raises ``BadRecordError`` when asked for a record that
can't be used; a file that can't be opened at all raises it at once. What to do about a bad record is not the source's business.
``open_source`` takes of each record the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from ._array_record import ArrayRecordSource
from ._arrow import ArrowSource, ParquetSource
from ._document import Document
from ._errors import BadRecordError, Reason
from ._jsonl import JsonlSource
from ._read_bytes import decode, read_bytes
from ._record import Record
from ._remote import File
from .protocols import Source


def open_records(file: File, *, text_field: str = "text", columns: Sequence[str] | None = None) -> Source[Record]:
    """The records of one file. Unknown endings are read as plain text: one record, its text in ``text_field``.

    ``columns``: the fields to read where they can be read apart (Parquet, Arrow), all unless given; the first must be there.
    """
    name = file.name.lower()
    if name.endswith((".jsonl", ".jsonl.gz")):
        return JsonlSource(file)
    if name.endswith(".parquet"):
        return ParquetSource(file, columns=columns)
    if name.endswith(".arrow"):
        return ArrowSource(file, columns=columns)
    if name.endswith((".arrayrecord", ".array_record")):
        return ArrayRecordSource(file, text_field=text_field)
    return TextSource(file, text_field=text_field)


def open_source(file: File, *, text_field: str = "text") -> Source[Document]:
    """The documents of one file: of each record the text in ``text_field``."""
    return Documents(open_records(file, text_field=text_field, columns=(text_field,)), text_field=text_field)


@final
class TextSource:
    """One file of plain UTF-8 text: one record, all of it in ``text_field``."""

    def __init__(self, file: File, *, text_field: str = "text") -> None:
        self._file = file
        self._text_field = text_field

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int, /) -> Record:
        path = str(self._file)
        if index != 0:
            raise IndexError(f"{path}: one document, asked for {index}")
        data = read_bytes(self._file)
        if not data:
            raise BadRecordError(path, None, Reason.EMPTY_FILE, "nothing but a byte order mark")
        return Record({self._text_field: decode(data, path, None)}, path)


@final
class Documents:
    """The texts of records."""

    def __init__(self, records: Source[Record], *, text_field: str = "text") -> None:
        self._records = records
        self._text_field = text_field

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int, /) -> Document:
        record = self._records[index]
        return Document(record.text(self._text_field), record.path, record.number)


@final
class MemorySource:
    """Records of anything with a length and an index: texts, mappings, or whatever a list, an array or a dataset holds.

    A value that is no mapping becomes the field ``text_field``. ``name`` stands for the path.
    """

    def __init__(self, values: Source[object], *, name: str = "memory", text_field: str = "text") -> None:
        self._values = values
        self._name = name
        self._text_field = text_field

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int, /) -> Record:
        value = self._values[index]
        fields = value if isinstance(value, Mapping) else {self._text_field: value}
        return Record(fields, self._name, index + 1)
