"""Tables: Parquet, and the Arrow files that Hugging Face's ``datasets`` keeps (``Dataset.save_to_disk``). Both by pyarrow.

A Parquet file is read by row group, the last of which is kept. An Arrow file is mapped into memory as it is.
"""

from __future__ import annotations

import bisect
import importlib.util
import itertools
from collections.abc import Sequence
from typing import Any, final

from ._errors import BadRecordError, DataError, Reason
from ._record import Record, no_field
from ._remote import File, RemoteFile, in_memory, seekable

_FILE_FORMAT_MAGIC = b"ARROW1"


@final
class ParquetSource:
    """The rows of a Parquet file, of them those of ``columns`` that there are, or all. The first must be there. Needs the extra ``ax-input[parquet]``."""

    def __init__(self, file: File, *, columns: Sequence[str] | None = None) -> None:
        arrow = _pyarrow(file, "Parquet")
        import pyarrow.parquet  # type: ignore[import-untyped]  # takes long to load

        self._path = str(file)
        self._arrow_errors: tuple[type[Exception], ...] = (arrow.ArrowException, OSError)
        try:
            self._file = pyarrow.parquet.ParquetFile(seekable(file), memory_map=not isinstance(file, RemoteFile))
        except self._arrow_errors as error:
            raise BadRecordError(self._path, None, Reason.CORRUPT, f"not a Parquet file: {error}") from error
        metadata = self._file.metadata
        self._columns = _present(self._path, self._file.schema_arrow.names, columns)
        sizes = (metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        self._ends = list(itertools.accumulate(sizes))
        if len(self) == 0:
            raise BadRecordError(self._path, None, Reason.EMPTY_FILE, "no rows in it")
        self._group = -1

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int, /) -> Record:
        if not 0 <= index < len(self):
            raise IndexError(f"{self._path}: {len(self)} rows, asked for {index}")
        group = bisect.bisect_right(self._ends, index)
        if group != self._group:
            try:
                self._table = self._file.read_row_group(group, columns=self._columns)
            except self._arrow_errors as error:
                raise BadRecordError(self._path, index + 1, Reason.CORRUPT, str(error)) from error
            self._group = group
        first = self._ends[group] - len(self._table)
        return _row(self._table, index - first, self._path, index + 1, self._arrow_errors)


@final
class ArrowSource:
    """The rows of an Arrow IPC file, in the stream format (as ``datasets`` writes) or the file format (Feather).

    Of them those of ``columns`` that there are, or all; the first must be there. Needs the extra ``ax-input[parquet]``.
    """

    def __init__(self, file: File, *, columns: Sequence[str] | None = None) -> None:
        arrow = _pyarrow(file, "Arrow files")
        import pyarrow.ipc  # type: ignore[import-untyped]

        self._path = str(file)
        self._arrow_errors: tuple[type[Exception], ...] = (arrow.ArrowException, OSError)
        try:
            opened = in_memory(file) if isinstance(file, RemoteFile) else arrow.memory_map(str(file))
            of_file_format = opened.read(len(_FILE_FORMAT_MAGIC)) == _FILE_FORMAT_MAGIC
            opened.seek(0)
            reader = pyarrow.ipc.open_file(opened) if of_file_format else pyarrow.ipc.open_stream(opened)
            table = reader.read_all()
        except self._arrow_errors as error:
            raise BadRecordError(self._path, None, Reason.CORRUPT, f"not an Arrow file: {error}") from error
        self._table = table.select(_present(self._path, table.column_names, columns))
        if len(self) == 0:
            raise BadRecordError(self._path, None, Reason.EMPTY_FILE, "no rows in it")

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int, /) -> Record:
        if not 0 <= index < len(self):
            raise IndexError(f"{self._path}: {len(self)} rows, asked for {index}")
        return _row(self._table, index, self._path, index + 1, self._arrow_errors)


def _pyarrow(file: File, what: str) -> Any:
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError(f"{file}: reading {what} needs pyarrow: pip install 'ax-input[parquet]'")
    import pyarrow  # an extra that takes long to load, without types

    return pyarrow


def _present(path: str, present: list[str], wanted: Sequence[str] | None) -> list[str]:
    if wanted is None:
        return present
    if wanted[0] not in present:
        raise BadRecordError(path, None, Reason.MISSING_FIELD, no_field(wanted[0], present))
    return [name for name in wanted if name in present]


def _row(table: Any, index: int, path: str, number: int, arrow_errors: tuple[type[Exception], ...]) -> Record:
    try:
        fields = {name: table.column(name)[index].as_py() for name in table.column_names}
    except UnicodeDecodeError as error:
        raise BadRecordError(path, number, Reason.UNDECODABLE, f"not UTF-8: {error}") from error
    except arrow_errors as error:
        raise BadRecordError(path, number, Reason.CORRUPT, str(error)) from error
    return Record(fields, path, number)
