"""Metrics in TensorBoard's event files, which tensorboardX knows how to form and TensorBoard how to draw.

tensorboardX's own writer hands events to a thread that writes them later; a killed run would lose them. So this one forms
the same records from the same protos and gives each to the operating system in one write. An event file can't be taken
back: a rewind begins a new one that tells TensorBoard which steps of the earlier ones to forget.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]  # tensorboardX ships no types.

_NONE_OPEN = -1


@final
class TensorBoardSink:
    """Writes scalars called ``<name>/<value's name>`` to event files in ``folder``. Fits a trainer's ``MetricSink``.

    TensorBoard keeps scalars as float32.
    """

    def __init__(self, folder: str | os.PathLike[str], /) -> None:
        self._folder = Path(folder)
        self._file = _NONE_OPEN

    def rewind(self, step: int, /) -> None:
        """Begin a new event file that hides all later steps of those before it."""
        # Imported here, not above: protobuf takes a tenth of a second, and only who writes events should wait for it.
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self._begin()
        # TensorBoard forgets the steps of earlier files from the step of this mark on.
        self._append(Event(step=step + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        """Add a scalar for each value; they survive a kill of this process once the call returns."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

        if self._file == _NONE_OPEN:
            self._begin()
        scalars = [Summary.Value(tag=f"{name}/{key}", simple_value=float(value)) for key, value in values.items()]
        self._append(Event(step=step, summary=Summary(value=scalars)))

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        if self._file != _NONE_OPEN:
            os.close(self._file)
            self._file = _NONE_OPEN

    def _begin(self) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads a folder's files in the order of their names, and the time comes first in them.
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        self._append(Event(file_version="brain.Event:2"))

    def _append(self, event: Event) -> None:
        """One record: length, its checksum, the event, its checksum."""
        from tensorboardX.record_writer import masked_crc32c  # type: ignore[import-untyped]

        event.wall_time = time.time()
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        record = length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
        written = os.write(self._file, record)
        while written < len(record):
            written += os.write(self._file, record[written:])
