"""From files to documents, one after another: the bad ones by policy, the progress told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ._document import Document
from ._errors import BadRecordError, BadRecordLog
from ._remote import File, size_of
from ._sources import open_source

OnProgress = Callable[[int, int], None]
"""Called with the bytes of files that are done, and those of all files."""

_RECORDS_PER_REPORT = 256


def read_documents(
    files: Sequence[File], *, text_field: str, bad_records: BadRecordLog, on_progress: OnProgress | None = None
) -> Iterator[Document]:
    """The documents of ``files`` in order. What can't be used goes to ``bad_records``."""
    sizes = [size_of(file) for file in files]
    total = sum(sizes)
    done = 0
    for file, size in zip(files, sizes, strict=True):
        try:
            source = open_source(file, text_field=text_field)
        except BadRecordError as error:
            bad_records.add(error)
        else:
            for index in range(len(source)):
                try:
                    document = source[index]
                except BadRecordError as error:
                    bad_records.add(error)
                else:
                    yield document
                if on_progress is not None and index % _RECORDS_PER_REPORT == _RECORDS_PER_REPORT - 1:
                    on_progress(done + size * index // len(source), total)
        done += size
        if on_progress is not None:
            on_progress(done, total)
