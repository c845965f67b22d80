"""The metric file: exact numbers, and a file that survives kills, full disks and rewinds."""

from __future__ import annotations

import math
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ax_runtime.agent import JsonlSink, Record, read_jsonl


def test_floats_come_back_exactly(tmp_path: Path) -> None:
    numbers = [random.Random(0).uniform(-1e30, 1e30) for _ in range(200)] + [0.1, -0.0, 5e-324, 1.7976931348623157e308]
    sink = JsonlSink(tmp_path / "m.jsonl")
    for step, number in enumerate(numbers):
        sink.write(step, "train", {"loss": number})
    sink.close()
    read = [record.values["loss"] for record in read_jsonl(tmp_path / "m.jsonl")]
    assert [number.hex() for number in read] == [number.hex() for number in numbers]


def test_what_json_lacks_comes_back_too(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "m.jsonl")
    sink.write(1, "train", {"nan": math.nan, "up": math.inf, "down": -math.inf})
    sink.close()
    assert (tmp_path / "m.jsonl").read_text() == (
        '{"step": 1, "name": "train", "nan": "NaN", "up": "Infinity", "down": "-Infinity"}\n'
    )
    (record,) = read_jsonl(tmp_path / "m.jsonl")
    assert math.isnan(record.values["nan"])
    assert (record.values["up"], record.values["down"]) == (math.inf, -math.inf)


def test_the_last_step_is_the_greatest(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "m.jsonl")
    assert sink.last_step() is None
    for step in (1, 3, 2):
        sink.write(step, "train", {"x": step})
    assert sink.last_step() == 3
    sink.rewind(2)
    assert sink.last_step() == 2
    sink.close()


def test_rewind_drops_later_steps_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    sink = JsonlSink(path)
    for step, name in [(1, "train"), (3, "train"), (2, "speed"), (4, "speed"), (3, "valid")]:
        sink.write(step, name, {"x": step})
    sink.rewind(2)
    sink.write(3, "train", {"x": 33})
    sink.close()
    assert read_jsonl(path) == [
        Record(1, "train", {"x": 1.0}),
        Record(2, "speed", {"x": 2.0}),
        Record(3, "train", {"x": 33.0}),
    ]
    assert os.listdir(tmp_path) == ["m.jsonl"]


def test_a_torn_last_line_is_left_out_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1, "name": "train", "loss": 2.0}\n{"step": 2, "na')
    assert read_jsonl(path) == [Record(1, "train", {"loss": 2.0})]
    sink = JsonlSink(path)
    sink.write(2, "train", {"loss": 1.5})
    sink.close()
    assert [record.step for record in read_jsonl(path)] == [1, 2]


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"step": 1}', '{"step": 1, "name": "a", "x": "high"}'])
def test_a_foreign_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(f'{{"step": 1, "name": "train"}}\n{line}\n')
    with pytest.raises(ValueError, match=r"m\.jsonl, line 2"):
        read_jsonl(path)


def test_reserved_names_are_refused(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "m.jsonl")
    with pytest.raises(ValueError, match="called 'step'"):
        sink.write(1, "train", {"step": 1.0})
    sink.close()


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    """A file size limit stands for the full disk: like it, it takes what fits of a line before it refuses."""
    path = tmp_path / "m.jsonl"
    sink = JsonlSink(path)
    sink.write(1, "train", {"loss": 1.0})
    whole = path.read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, before[1]))
    try:
        with pytest.raises(OSError, match=r"can't write a metric line: File too large: .*m\.jsonl"):
            sink.write(2, "train", {"loss": 1.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == whole
    sink.write(2, "train", {"loss": 1.0})
    sink.close()
    assert [record.step for record in read_jsonl(path)] == [1, 2]


_WRITER = """
import sys
from ax_runtime.agent import JsonlSink, read_jsonl
sink = JsonlSink(sys.argv[1])
step = max((record.step for record in read_jsonl(sys.argv[1])), default=0)
step = max(0, step - 50)
sink.rewind(step)
while True:
    step += 1
    sink.write(step, "train", {"loss": 1 / step})
    print(step, flush=True)
"""


def test_kill_loses_nothing_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    for attempt in range(3):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        first = int(process.stdout.readline())
        time.sleep(0.02 * (attempt + 1))
        process.kill()
        printed = [first] + [int(line) for line in process.stdout.read().split("\n")[:-1]]
        process.stdout.close()
        process.wait()
        steps = [record.step for record in read_jsonl(path)]
        assert steps == list(range(1, len(steps) + 1))
        assert steps[-1] >= printed[-1]
