"""Offline runs of Weights & Biases, read back from their files by wandb's own records."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ax_runtime.wandb import WandbSink
from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # it is chosen by protobuf's version

_HEADER, _BLOCK = 7, 1 << 15


def _records(file: Path) -> Iterator[Record]:
    """The records of a file in LevelDB's log format: blocks of chunks, each with checksum, length and kind."""
    content, at, record = file.read_bytes(), _HEADER, b""
    while at + 7 <= len(content):
        if _BLOCK - at % _BLOCK < 7:
            at += _BLOCK - at % _BLOCK
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(record)
            record = b""


def _finished(file: Path) -> list[Record]:
    """The records, once wandb's process has written the last of them, which it does when the run has long returned."""
    deadline = time.monotonic() + 60
    records = list(_records(file))
    while not any(record.HasField("exit") for record in records):
        assert time.monotonic() < deadline, [record.WhichOneof("record_type") for record in records]
        time.sleep(0.05)
        records = list(_records(file))
    return records


def _runs(folder: Path) -> list[tuple[Record, list[dict[str, float]]]]:
    """Every run by age: how it was begun, and what was logged."""
    runs = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns):
        records = _finished(file)
        (begun,) = [record for record in records if record.HasField("run")]
        logged = [
            {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for record in records
            if record.HasField("history")
        ]
        runs.append((begun, [{k: v for k, v in line.items() if not k.startswith("_")} for line in logged]))
    return runs


@pytest.fixture(autouse=True)
def _nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


def test_a_start_and_a_rewind_are_runs_of_one_group(tmp_path: Path) -> None:
    folder = tmp_path / "first"
    folder.mkdir()
    (folder / "config.txt").write_text(". = new a:B\nnum_steps = 3\nmodel.dim = 32\n")
    sink = WandbSink.Config(project="ours", mode="offline", tags=("small",)).build(folder=folder)
    sink.rewind(0)
    sink.write(1, "train", {"loss": 1 / 3, "grad_norm": math.inf})
    sink.write(1, "validation", {"loss": 5e-324})
    sink.rewind(1)
    sink.write(2, "train", {"loss": 0.1 + 0.2})
    sink.close()
    sink.close()
    (first, logged), (second, further) = _runs(folder)
    assert logged == [
        {"step": 1, "train/loss": 1 / 3, "train/grad_norm": math.inf},
        {"step": 1, "validation/loss": 5e-324},
    ]
    assert further == [{"step": 2, "train/loss": 0.1 + 0.2}]
    assert [run.run.display_name for run in (first, second)] == ["first-from-0", "first-from-1"]
    assert {run.run.run_group for run in (first, second)} == {"first"}
    assert (first.run.project, list(first.run.tags)) == ("ours", ["small"])
    config = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in first.run.config.update}
    assert {path: config[path] for path in ("num_steps", "model.dim")} == {"num_steps": "3", "model.dim": "32"}
