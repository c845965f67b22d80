"""Event files: read back record by record, as TensorBoard would read them."""

from __future__ import annotations

import math
import struct
from pathlib import Path

from ax_runtime.tensorboard import TensorBoardSink
from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboardX.record_writer import masked_crc32c  # type: ignore[import-untyped]


def _events(folder: Path) -> list[Event]:
    events = []
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            data = content[12 : 12 + length]
            checksums = struct.unpack("<I", content[8:12]) + struct.unpack("<I", content[12 + length : 16 + length])
            assert checksums == (masked_crc32c(content[:8]), masked_crc32c(data))
            events.append(Event.FromString(data))
            content = content[16 + length :]
    return events


def _scalars(folder: Path) -> list[tuple[int, str, float]]:
    """What TensorBoard shows: a restart mark hides the steps from its own on in what came before."""
    shown: list[tuple[int, str, float]] = []
    for event in _events(folder):
        if event.session_log.status == SessionLog.START:
            shown = [scalar for scalar in shown if scalar[0] < event.step]
        shown += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return shown


def test_scalars_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path / "tb")
    sink.write(1, "train", {"loss": 2.5, "grad_norm": math.inf})
    sink.write(2, "valid", {"loss": 0.5})
    assert _scalars(tmp_path / "tb") == [
        (1, "train/loss", 2.5),
        (1, "train/grad_norm", math.inf),
        (2, "valid/loss", 0.5),
    ]
    assert _events(tmp_path / "tb")[0].file_version == "brain.Event:2"
    sink.close()


def test_a_rewind_hides_later_steps(tmp_path: Path) -> None:
    first = TensorBoardSink(tmp_path)
    first.rewind(0)
    for step in (1, 2, 3):
        first.write(step, "train", {"loss": step})
    first.rewind(2)
    first.write(3, "train", {"loss": 33})
    first.close()
    second = TensorBoardSink(tmp_path)  # As the process would that takes over.
    second.rewind(1)
    second.write(2, "train", {"loss": 22})
    second.close()
    assert _scalars(tmp_path) == [(1, "train/loss", 1.0), (2, "train/loss", 22.0)]
