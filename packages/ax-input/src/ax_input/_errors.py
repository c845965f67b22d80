"""What goes wrong with data, and the account of it.

Everything is a ``DataError``. The subclass ``BadRecordError`` is the part that a policy may forgive: one file or one record
in it that can't be used, while the rest can. Its ``reason`` is one of a few words to count by; its message says where
and what.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


class DataError(ValueError):
    """The data can't be used as asked."""


class Reason(enum.StrEnum):
    """Why a record is bad."""

    EMPTY_FILE = "empty file"
    EMPTY_TEXT = "empty text"
    UNREADABLE = "unreadable"
    UNDECODABLE = "undecodable"
    CORRUPT = "corrupt"
    MISSING_FIELD = "missing field"
    WRONG_TYPE = "wrong type"
    REFUSED = "refused"


class BadRecordError(DataError):
    """One file, or one record of it, can't be used.

    ``record`` is the number of the line (text, JSON lines) or row (Parquet), counted from 1, or None when it is the file.
    """

    def __init__(self, path: str, record: int | None, reason: Reason, detail: str) -> None:
        self.path = path
        self.record = record
        self.reason = reason
        self.detail = detail
        where = path if record is None else f"{path}:{record}"
        super().__init__(f"{where}: {reason}: {detail}")

    def __reduce__(self) -> tuple[type[BadRecordError], tuple[str, int | None, Reason, str], dict[str, object]]:
        return type(self), (self.path, self.record, self.reason, self.detail), self.__dict__  # with its notes


@dataclass(frozen=True)
class Report:
    """What was read. ``bad_records`` counts by reason what was left out; ``examples`` tells of the first few."""

    num_documents: int
    num_bytes: int
    num_tokens: int
    bad_records: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()

    @property
    def num_bad_records(self) -> int:
        """How many files and records were left out."""
        return sum(self.bad_records.values())

    def __str__(self) -> str:
        """One line for a log."""
        read = f"{self.num_documents:,} documents, {self.num_bytes:,} bytes, {self.num_tokens:,} tokens"
        if not self.bad_records:
            return read
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.bad_records.items())
        return f"{read}; left out {self.num_bad_records:,}: {reasons}"


class BadRecordLog:
    """Applies the policy: raises what it is given (``"error"``), or counts it (``"skip"``)."""

    MAX_EXAMPLES = 5

    def __init__(self, on_bad_record: str) -> None:
        if on_bad_record not in ("error", "skip"):
            raise DataError(f'on_bad_record: wanted "error" or "skip", got {on_bad_record!r}')
        self._skip = on_bad_record == "skip"
        self._counts: Counter[str] = Counter()
        self._examples: list[str] = []

    def add(self, error: BadRecordError) -> None:
        """Take note of ``error``, or raise it."""
        if not self._skip:
            error.add_note('on_bad_record="skip" leaves bad records out and counts them')
            raise error
        self.count(error)

    def count(self, error: BadRecordError) -> None:
        """Take note of ``error`` whatever the policy: of something that nobody asked for by name."""
        self._counts[error.reason.value] += 1
        if len(self._examples) < self.MAX_EXAMPLES:
            self._examples.append(str(error))

    @property
    def counts(self) -> Mapping[str, int]:
        """How many, by reason."""
        return dict(sorted(self._counts.items()))

    @property
    def examples(self) -> tuple[str, ...]:
        """The messages of the first few."""
        return tuple(self._examples)
