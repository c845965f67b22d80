"""Metrics as text: one JSON object a line, ``{"step": 3, "name": "train", "loss": 4.25}``.

The file is the run's own memory of its losses, so two things matter more than speed. Numbers come back exactly (the
shortest decimal that round-trips). And the file survives a kill at any moment: a line goes to the operating system in one
write before ``write`` returns, and a line that a kill cut short is dropped by the reader and by the next writer.

JSON has no NaN and no infinities; they are written as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, which
``read_jsonl`` turns back to floats.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from ._atomic import write_atomically

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True)
class Record:
    """One line: ``values`` that were measured at ``step`` under ``name``."""

    step: int
    name: str
    values: Mapping[str, float]


@final
class JsonlSink:
    """Appends records to a file. Fits a trainer's ``MetricSink``.

    Opening an existing file continues it; a last line that a kill cut short is removed first. One process at a time may
    have the file open (a run folder's lock sees to it).
    """

    def __init__(self, path: str | os.PathLike[str], /) -> None:
        self._path = Path(path)
        self._file = self._open()

    def rewind(self, step: int, /) -> None:
        """Remove all lines of later steps, wherever they stand; the file changes at once or not at all."""
        content = self._path.read_bytes()
        kept = b"".join(
            line for line, record in _records(self._path, content.splitlines(keepends=True)) if record.step <= step
        )
        if kept == content:
            return
        write_atomically(self._path, kept)
        os.close(self._file)  # It still points to the file that was replaced.
        self._file = self._open()

    def last_step(self) -> int | None:
        """The greatest step of a line; None when there is no line."""
        return max((record.step for record in iter_jsonl(self._path)), default=None)

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        """Append one line; it survives a kill of this process once the call returns.

        Raises ValueError for a value called ``step`` or ``name``, OSError when the line can't be written (the file is
        then as it was before).
        """
        reserved = {"step", "name"} & values.keys()
        if reserved:
            raise ValueError(
                f"{self._path}: a value of {name!r} at step {step} is called {sorted(reserved)[0]!r}, "
                "which each line has already: rename it"
            )
        line = {"step": int(step), "name": name} | {key: _to_json(float(value)) for key, value in values.items()}
        data = (json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n").encode()
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            while written < len(data):  # A full disk takes what fits first, and refuses at the next call.
                written += os.write(self._file, data[written:])
        except OSError as error:
            os.ftruncate(self._file, size)
            raise OSError(error.errno, f"can't write a metric line: {error.strerror}", str(self._path)) from error

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        content = self._path.read_bytes()
        if content and not content.endswith(b"\n"):
            os.ftruncate(file, content.rfind(b"\n") + 1)
        return file


def read_jsonl(path: str | os.PathLike[str], /) -> list[Record]:
    """All records of a file that ``JsonlSink`` wrote, in file order; a last line that was cut short is left out.

    Raises ValueError with file and line number when a line isn't one of ours.
    """
    return list(iter_jsonl(path))


def iter_jsonl(path: str | os.PathLike[str], /) -> Iterator[Record]:
    """What ``read_jsonl`` gives, a record at a time, for files of any size."""
    with Path(path).open("rb") as lines:
        for _, record in _records(Path(path), lines):
            yield record


def _records(path: Path, lines: Iterable[bytes]) -> Iterator[tuple[bytes, Record]]:
    """Each whole line with its meaning; what stands behind the last line end is torn and left out."""
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            return
        try:
            fields = json.loads(line)
            record = Record(
                step=fields.pop("step"),
                name=fields.pop("name"),
                values={key: _from_json(value) for key, value in fields.items()},
            )
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: wanted an object with step, name and numbers, got {line[:80]!r} ({error})"
            ) from error
        yield line, record


def _to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _from_json(value: object) -> float:
    if isinstance(value, str):
        return _NOT_FINITE[value]
    if isinstance(value, int | float):
        return float(value)
    raise TypeError(f"{value!r} is no number")
