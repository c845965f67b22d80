"""A document: a text, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its origin.

    ``record`` is the line (JSON lines) or row (Parquet) in the file at ``path``, counted from 1; None when the document is the
    whole file.
    """

    text: str
    path: str
    record: int | None = None

    @property
    def origin(self) -> str:
        """``path`` or ``path:record``."""
        return self.path if self.record is None else f"{self.path}:{self.record}"
