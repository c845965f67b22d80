"""The work of preparing a corpus: shards, each done by one process, and seen in the folder when it is done.

See ``_prepare`` for the whole.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np

from ._array_record import WRITER_OPTIONS, ArrayRecordFile
from ._errors import BadRecordError, BadRecordLog
from ._holdout import content_digest
from ._prepared_corpus import INDEX
from ._read import OnProgress
from ._record import Record
from ._remote import File
from ._riegeli import locate
from ._sources import open_records
from .protocols import Encoder, Source

PARTIAL = ".partial"
"""How names of files end that aren't whole yet."""

Origin: TypeAlias = File | Source[Record]
"""A part of a corpus."""

_RECORDS_PER_REPORT = 64
_SECONDS_PER_REPORT = 0.2


@dataclass(frozen=True)
class Range:
    """Records ``start`` to ``stop`` of one source."""

    source: int
    start: int
    stop: int


@final
class Shards:
    """The shards of a plan, to be written into a folder. Travels between processes."""

    def __init__(
        self, out: Path, origins: Sequence[Origin], encoder: Encoder, plan: Mapping[str, Any], on_bad_record: str
    ) -> None:
        self._out = out
        self._origins = origins
        self._encoder = encoder
        self._on_bad_record = on_bad_record
        self._shards = [[Range(**each) for each in shard] for shard in plan["shards"]]
        self._sizes = [int(state["size"]) for state in plan["sources"]]
        self._counts = [int(count) for count in plan["records"]]
        self._opened: tuple[int, Source[Record]] | None = None

    def run(self, processes: int, on_progress: OnProgress | None) -> None:
        """Do the shards that aren't there yet."""
        todo = [shard for shard in range(len(self._shards)) if not (self._out / part_name(shard)).exists()]
        total = sum(self._sizes)
        done = total - sum(self._weight(each.source, each.start, each.stop) for s in todo for each in self._shards[s])

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            if on_progress is not None:
                on_progress(done, total)

        if processes == 1 or len(todo) < 2:
            for shard in todo:
                self.do(shard, advance)
            return
        context = multiprocessing.get_context("spawn")
        count, stop = context.Value("q", 0), context.Event()
        with ProcessPoolExecutor(min(processes, len(todo)), context, _become_worker, (self, count, stop)) as pool:
            running = {pool.submit(_work, shard) for shard in todo}
            seen = 0
            try:
                while running:
                    finished, running = wait(running, _SECONDS_PER_REPORT, FIRST_COMPLETED)
                    now = count.value
                    advance(now - seen)
                    seen = now
                    for future in finished:
                        future.result()
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def do(self, shard: int, advance: Callable[[int], None]) -> None:
        """Write a shard, and then its part of the index."""
        from array_record.python.array_record_module import ArrayRecordWriter  # type: ignore[import-untyped]

        bad_records = BadRecordLog(self._on_bad_record)
        entries: list[tuple[object, ...]] = []
        with appearing(self._out / shard_name(shard)) as partial:
            writer = ArrayRecordWriter(str(partial), WRITER_OPTIONS)
            for each in self._shards[shard]:
                for record in self._records(each, bad_records, advance):
                    try:
                        arrays, num_bytes = self._encoder(record)
                    except BadRecordError as error:
                        bad_records.add(error)
                        continue
                    kept = [np.ascontiguousarray(arrays[name], dtype) for name, dtype in self._encoder.dtypes.items()]
                    data = b"".join(array.tobytes() for array in kept)
                    writer.write(data)
                    entries.append(
                        (len(kept[0]), num_bytes, list(content_digest(data)), each.source, record.number or 0)
                    )
            writer.close()
            written = ArrayRecordFile(partial)
            places = list(locate(partial, (written[i] for i in range(len(written)))))
        index = [(place, *entry) for place, entry in zip(places, entries, strict=True)]
        columns = {
            name: np.array([entry[i] for entry in index], dtype).reshape(-1, *shape)
            for i, (name, (dtype, shape)) in enumerate(INDEX.items())
        }
        told = json.dumps({"bad_records": bad_records.counts, "bad_examples": bad_records.examples}).encode()
        with appearing(self._out / part_name(shard)) as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **columns, told=np.frombuffer(told, np.uint8))

    def _records(self, each: Range, bad_records: BadRecordLog, advance: Callable[[int], None]) -> Iterator[Record]:
        if self._opened is None or self._opened[0] != each.source:
            self._opened = each.source, open_origin(self._origins[each.source], self._encoder)
        records = self._opened[1]
        told = each.start
        for index in range(each.start, each.stop):
            try:
                yield records[index]
            except BadRecordError as error:
                bad_records.add(error)
            if index + 1 == each.stop or index + 1 - told == _RECORDS_PER_REPORT:
                advance(self._weight(each.source, told, index + 1))
                told = index + 1

    def _weight(self, source: int, start: int, stop: int) -> int:
        """The bytes that records of a source count for; those of all together are the source's."""
        size, count = self._sizes[source], self._counts[source]
        return size * stop // count - size * start // count


_worker: tuple[Shards, Callable[[int], None]] | None = None
"""What a worker was started with: its work, and how to tell of it."""


def _become_worker(shards: Shards, count: Any, stop: Any) -> None:
    def advance(amount: int) -> None:
        if stop.is_set():
            raise _StoppedError
        with count.get_lock():
            count.value += amount

    global _worker
    _worker = shards, advance
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and tells
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        parent.join()
        os._exit(1)

    # A killed parent says nothing to its workers, and they'd wait forever.
    threading.Thread(target=leave_with_parent, daemon=True).start()


def _work(shard: int) -> None:
    assert _worker is not None
    shards, advance = _worker
    shards.do(shard, advance)


class _StoppedError(Exception):
    """The others stopped."""


def open_origin(origin: Origin, encoder: Encoder) -> Source[Record]:
    """The records of a part of a corpus."""
    if isinstance(origin, File):
        return open_records(origin, text_field=encoder.fields[0], columns=encoder.fields)
    return origin


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Another name to write a file under, that becomes ``path`` when it is whole and on the disk."""
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    yield partial
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.replace(path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file that is whole whenever it is there."""
    with appearing(path) as partial:
        partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def shard_name(shard: int) -> str:
    """The file of a shard's documents."""
    return f"shard-{shard:05}.arrayrecord"


def part_name(shard: int) -> str:
    """The file of a shard's part of the index: when it is there, the shard is done."""
    return f"part-{shard:05}.npz"
