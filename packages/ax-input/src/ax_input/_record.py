"""A record: named values, and where they came from. What sources give, and what encoders make tokens of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ._errors import BadRecordError, Reason


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of one line (JSON lines), row (Parquet, Arrow), record (ArrayRecord) or whole text file.

    ``number`` counts from 1 in the file at ``path``; None when the record is the whole file.
    """

    fields: Mapping[str, object]
    path: str
    number: int | None = None

    @property
    def origin(self) -> str:
        """``path`` or ``path:number``."""
        return self.path if self.number is None else f"{self.path}:{self.number}"

    def field(self, name: str) -> object:
        """The value of a field. Raises BadRecordError when there is none."""
        if name not in self.fields:
            raise self.bad(Reason.MISSING_FIELD, no_field(name, list(self.fields)))
        return self.fields[name]

    def text(self, name: str) -> str:
        """A field that holds text, and some. Raises BadRecordError for anything else."""
        value = self.field(name)
        if not isinstance(value, str):
            raise self.bad(Reason.WRONG_TYPE, f"the field {name!r} holds {type(value).__name__}, wanted a string")
        if not value:
            raise self.bad(Reason.EMPTY_TEXT, f"the field {name!r} is empty")
        if not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                detail = f"the field {name!r} holds half a surrogate pair at character {error.start}"
                raise self.bad(Reason.UNDECODABLE, detail) from error
        return value

    def bad(self, reason: Reason, detail: str) -> BadRecordError:
        """The error that says what is wrong with this record."""
        return BadRecordError(self.path, self.number, reason, detail)


def no_field(wanted: str, present: list[str]) -> str:
    """What to say when a record or a file has no such field."""
    return f"no field {wanted!r}; there are: {', '.join(map(repr, present)) or 'none'} (choose one by text_field)"
