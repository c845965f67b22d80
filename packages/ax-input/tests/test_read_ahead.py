"""Readers that are threads and readers that are processes: what they give, and what is said of them when they don't."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from ax_input import DataError, ReadAhead, StalledError


class Hanging:
    """Items that are numbers; one is never read, and one can't be. Fits ``Source``."""

    def __init__(self, *, hangs_at: int | None = None, fails_at: int | None = None) -> None:
        self._hangs_at, self._fails_at = hangs_at, fails_at

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, item: int, /) -> Mapping[str, np.ndarray]:
        if item == self._fails_at:
            raise DataError(f"item {item} is broken")
        if item == self._hangs_at:
            wait_for_a_disk_that_is_gone()
        return {"item": np.array([item, os.getpid()])}


def wait_for_a_disk_that_is_gone() -> None:
    time.sleep(600)


def no_parts() -> Sequence[str]:
    return []


def reading(num_workers: int, deadline_seconds: float = 60.0, num_batches: int = 2) -> ReadAhead:
    return ReadAhead.Config(num_workers=num_workers, deadline_seconds=deadline_seconds, num_batches=num_batches).build()


def test_a_thread_gives_the_items_in_order() -> None:
    reader = reading(0).read(Hanging())
    assert [reader.next("an item", no_parts)["item"].tolist() for _ in range(20)] == [
        [i, os.getpid()] for i in range(20)
    ]
    reader.close()


@pytest.mark.parametrize("num_batches", [1, 4])
def test_as_much_lies_ready_as_was_asked(num_batches: int) -> None:
    read: list[int] = []

    class Noting(Hanging):
        def __getitem__(self, item: int, /) -> Mapping[str, np.ndarray]:
            read.append(item)
            return super().__getitem__(item)

    reader = reading(0, num_batches=num_batches).read(Noting())
    for taken in range(3):
        reader.next("an item", no_parts)
        deadline = time.monotonic() + 10
        while len(read) < taken + 2 + num_batches and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.02)
        assert read == list(range(taken + 2 + num_batches))  # those that lie ready, and one at hand
    reader.close()


def test_a_thread_that_hangs_is_found_out() -> None:
    reader = reading(0, deadline_seconds=1.0).read(Hanging(hangs_at=2))
    for i in range(2):
        assert reader.next(f"item {i}", no_parts)["item"][0] == i
    start = time.monotonic()
    with pytest.raises(StalledError, match=r"item 2 didn't come within 1 s\. The thread that reads stands at:") as info:
        reader.next("item 2", lambda: [f"part {i}" for i in range(11)])
    assert time.monotonic() - start < 20
    assert "wait_for_a_disk_that_is_gone" in info.value.stack
    assert "time.sleep(600)" in info.value.stack
    assert str(info.value).endswith(
        "It was to read:\n  part 0\n" + "".join(f"  part {i}\n" for i in range(1, 8)) + "  and 3 more"
    )
    assert str(pickle.loads(pickle.dumps(info.value))) == str(info.value)
    start = time.monotonic()
    reader.close()
    assert time.monotonic() - start < 4  # it isn't waited for


def test_an_error_says_what_was_read() -> None:
    reader = reading(0).read(Hanging(fails_at=0))
    with pytest.raises(DataError, match="item 0 is broken") as info:
        reader.next("the first item", no_parts)
    assert info.value.__notes__[-1] == "while the first item was read"
    reader.close()


def test_a_reader_that_is_forgotten_ends() -> None:
    reader = reading(0).read(Hanging())
    reader.next("an item", no_parts)
    thread = reader._thread
    assert thread.is_alive()
    del reader
    gc.collect()
    thread.join(timeout=10)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": -1}, r"read_ahead\.num_workers: wanted at least 0, got -1"),
        ({"num_batches": 0}, r"read_ahead\.num_batches: wanted at least 1, got 0"),
        ({"deadline_seconds": 0.0}, r"read_ahead\.deadline_seconds: wanted more than 0, got 0.0"),
    ],
)
def test_wrong_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        ReadAhead.Config().clone(**settings).build()


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own: its workers import it, which they can't a test module that pytest imported."""
    path = folder / "script.py"
    path.write_text(PREAMBLE + script)
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)


PREAMBLE = """
import multiprocessing, os, signal, time
import numpy as np
from ax_input import BatchStream, Ledger, MemoryDocuments, Packing, ReadAhead, Rows, StalledError

class Documents:
    lengths = np.full(40, 31, np.int64)
    fingerprint = "some"
    hangs_at = -1
    def __len__(self):
        return 40
    def __getitem__(self, index):
        if index == self.hangs_at:
            wait_for_a_disk_that_is_gone()
        return {"tokens": np.arange(31, dtype=np.int32) + 31 * index}
    def origin(self, index):
        return f"corpus/{index}.txt"

def wait_for_a_disk_that_is_gone():
    time.sleep(600)

def stream(documents, **read_ahead):
    rows = Rows(documents, packing=Packing.Config().build(), seq_length=32, eos_id=0)
    ledger = Ledger({"text": rows}, batch_size=4, seed=0, shuffle=False)
    return BatchStream(ledger, read_ahead=ReadAhead.Config(**read_ahead).build())
"""


def test_workers(tmp_path: Path) -> None:
    """They give what a thread gives, one that hangs is named and killed, and one may go on after the batch that it hung at.

    When the process whose workers they are is killed, they go.
    """
    script = """
def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)

if __name__ == "__main__":
    documents = Documents()
    documents.hangs_at = 12  # in batch 3, which worker 1 of 2 reads
    alone, shared = stream(Documents()), stream(documents, num_workers=2, deadline_seconds=3.0)
    for _ in range(3):
        assert same(next(alone), next(shared))
        assert alone.get_state() == shared.get_state()
    state = shared.get_state()
    start = time.monotonic()
    try:
        next(shared)
    except StalledError as error:
        print(error)
    print("after", time.monotonic() - start)
    assert shared.get_state() == state
    assert not multiprocessing.active_children()
    next(alone)
    shared.set_state(alone.get_state())
    for _ in range(5):
        assert same(next(alone), next(shared))
    print("workers", *[child.pid for child in multiprocessing.active_children()], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    result = run(script, tmp_path)
    assert result.returncode == -signal.SIGKILL, result.stderr
    *lines, workers = result.stdout.splitlines()
    processes = [int(process) for process in workers.split()[1:]]
    assert len(processes) == 2
    assert lines[0].startswith("batch 3 didn't come within 3 s. Worker 1 of 2 (process ")
    assert lines[1].endswith("(most recent call first):")
    assert lines[2].endswith("in wait_for_a_disk_that_is_gone")
    assert not any("grain" in line for line in lines)
    assert "  row 0: text: corpus/12.txt, document 12, tokens 0 to 32, epoch 0" in lines
    assert 3 <= float(lines[-1].split()[-1]) < 30
    assert "Traceback" not in result.stderr
    deadline = time.monotonic() + 20
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, processes))


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # In a container without an init, what is dead but was not waited for stays in the table.
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
