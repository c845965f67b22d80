"""Reading ahead of a consumer who waits only so long.

Grain reads: in a thread of this process, or in processes of its own (``mp_prefetch``), of which number ``i`` of ``n`` reads the items
``i``, ``i + n``, … Between it and the consumer stands a queue, from which the consumer takes with a deadline. When that passes,
``StalledError`` tells where the reader stands: of a thread from its frames, of a worker process from a file, into which
``faulthandler`` there dumps the stacks of a read that takes long, even one that holds the interpreter's lock.

The thread that asks Grain is a daemon, so a read that never returns keeps no process from ending.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import queue
import re
import signal
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, cast, final

import ax_config
import numpy as np
from ax_config import field

from ._errors import DataError
from .protocols import Source

Arrays = Mapping[str, np.ndarray]

_STARTING_SECONDS = 60.0  # for a worker process to start, before the first item that it reads
_CLOSING_SECONDS = 5.0
_PARTS_TOLD = 8
_SHARED_BYTES = 2**20


class StalledError(DataError):
    """Data didn't come in time.

    ``what`` was waited for, ``reader`` was to read it and stands at ``stack``; ``parts`` tells what is in it.
    """

    def __init__(self, what: str, seconds: float, reader: str, stack: str, parts: Sequence[str]) -> None:
        self.what, self.seconds, self.reader, self.stack, self.parts = what, seconds, reader, stack, tuple(parts)
        told = [*parts[:_PARTS_TOLD], *([f"and {len(parts) - _PARTS_TOLD} more"] if len(parts) > _PARTS_TOLD else [])]
        message = f"{what} didn't come within {seconds:g} s. {reader} stands at:\n{stack.rstrip()}\nIt was to read:\n"
        super().__init__(message + "\n".join(f"  {part}" for part in told))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.seconds, self.reader, self.stack, self.parts)


@final
class ReadAhead:
    """How batches are read before they are asked for.

    Worker processes are started afresh ("spawn"), so a script that wants them has its body under ``if __name__ == "__main__":``,
    and they are sent the documents: those on a disk as a path, those in memory as they are.

    Raises:
        DataError: A number is out of range.
    """

    class Config(ax_config.Config["ReadAhead"]):
        """Who reads, how far ahead, and how long to wait."""

        num_workers: int = field(default=0, help="processes that read; 0 means a thread of this one")
        num_batches: int = field(default=2, help="batches that lie ready, of each worker")
        deadline_seconds: float = field(default=600.0, help="how long to wait for a batch before it is an error")

    def __init__(self, cfg: Config, /) -> None:
        for name, value, least in (("num_workers", cfg.num_workers, 0), ("num_batches", cfg.num_batches, 1)):
            if value < least:
                raise DataError(f"read_ahead.{name}: wanted at least {least}, got {value}")
        if not cfg.deadline_seconds > 0:
            raise DataError(f"read_ahead.deadline_seconds: wanted more than 0, got {cfg.deadline_seconds}")
        self.cfg = cfg

    def read(self, source: Source[Arrays]) -> Reader:
        """Start to read ``source`` from 0 on."""
        return Reader(source, self.cfg)


class _Iterator(Protocol):
    """What is used of ``grain.DatasetIterator``, which ships no types."""

    def __next__(self) -> Arrays: ...

    def close(self) -> None: ...


class _Delivery(NamedTuple):
    arrays: Arrays | None
    error: BaseException | None


@final
class Reader:
    """Gives the items of a source one after another. Made by ``ReadAhead.read``."""

    def __init__(self, source: Source[Arrays], cfg: ReadAhead.Config) -> None:
        # Imported here, for it takes seconds. It ships no types.
        import grain  # type: ignore[import-untyped]

        self._cfg = cfg
        self._next_item = 0
        self._stalled = False
        self._notes: Path | None = None
        """Where worker processes note what they are at; the folder goes with this object."""
        if cfg.num_workers:
            self._folder = tempfile.TemporaryDirectory(prefix="ax-input-", ignore_cleanup_errors=True)
            self._notes = Path(self._folder.name)
            source = _Noting(source, self._notes, cfg.deadline_seconds / 2)
        dataset = grain.MapDataset.source(source).to_iter_dataset(
            grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        )
        if cfg.num_workers:
            _parse_flags()
            # Below this size a copy costs less than a piece of shared memory, which has to be made and cleared away.
            options = grain.experimental.DatasetOptions(min_shm_size=_SHARED_BYTES)
            dataset = grain.experimental.WithOptionsIterDataset(dataset, options).mp_prefetch(
                grain.MultiprocessingOptions(cfg.num_workers, per_worker_buffer_size=cfg.num_batches),
                worker_init_fn=_become_worker,
            )
        ready: queue.Queue[_Delivery] = queue.Queue(maxsize=cfg.num_batches)
        ended = threading.Event()
        self._ready, self._ended = ready, ended
        self._thread = threading.Thread(
            target=_deliver,
            args=(cast(_Iterator, iter(dataset)), ready, ended),
            name="ax-input-read-ahead",
            daemon=True,
        )
        self._thread.start()
        self._finalizer = weakref.finalize(self, _end, ready, ended, self._thread, _CLOSING_SECONDS)

    def next(self, what: str, parts: Callable[[], Sequence[str]]) -> Arrays:
        """The next item. ``what`` it is, and the ``parts`` that it is made of, are for people, when it can't be had.

        After an error nothing but ``close`` can be called.

        Raises:
            StalledError: It didn't come in time.
        """
        deadline = self._cfg.deadline_seconds
        if self._next_item < self._cfg.num_workers:
            deadline += _STARTING_SECONDS
        try:
            arrays, error = self._ready.get(timeout=deadline)
        except queue.Empty:
            self._stalled = True
            raise StalledError(what, deadline, *self._standing(), parts()) from None
        if error is not None:
            error.add_note(f"while {what} was read")
            raise error
        assert arrays is not None
        self._next_item += 1
        return arrays

    def close(self) -> None:
        """Stop reading. A worker process that is in the middle of a read, and stays there, is killed; a thread is left behind."""
        self._finalizer.detach()
        _end(self._ready, self._ended, self._thread, 0.0 if self._stalled else _CLOSING_SECONDS)
        if self._thread.is_alive() and self._notes is not None:
            reading = {_noted(note)[0] for note in self._notes.iterdir()}
            for child in multiprocessing.active_children():
                if child.pid in reading:
                    child.kill()
            self._thread.join(_CLOSING_SECONDS)

    def _standing(self) -> tuple[str, str]:
        """Who reads the next item, and where that stands."""
        if self._notes is None:
            frame = sys._current_frames().get(self._thread.ident or 0)
            return "The thread that reads", "".join(traceback.format_stack(frame))
        worker = f"Worker {self._next_item % self._cfg.num_workers} of {self._cfg.num_workers}"
        process, dumps = _noted(self._notes / str(self._next_item))
        if process is None:
            return worker, "  something before: it hasn't begun to read this"
        stack = _stack_of_reading(dumps)
        return f"{worker} (process {process})", stack or "  a place unknown: it has only just begun to read this"


def _parse_flags() -> None:
    """Grain's workers read flags of absl's, which fails unless a main of absl's has parsed the command line: then all have defaults."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


def _become_worker(index: int, count: int) -> None:  # noqa: ARG001  # Grain says which, to whom it doesn't matter
    """In a worker process: it goes when its parent does, also when that is killed; an interrupt at a terminal is the parent's affair."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _deliver(iterator: _Iterator, ready: queue.Queue[_Delivery], ended: threading.Event) -> None:
    """The thread: from Grain into the queue. It knows nothing of the ``Reader``, so that one that is forgotten can go."""
    while not ended.is_set():
        try:
            delivery = _Delivery(next(iterator), None)
        except BaseException as error:
            delivery = _Delivery(None, error)
            ended.set()
        ready.put(delivery)
    iterator.close()


def _end(ready: queue.Queue[_Delivery], ended: threading.Event, thread: threading.Thread, timeout: float) -> None:
    """Let the thread end, and wait for it: one that ran numpy while the interpreter goes away would bring it down."""
    ended.set()
    with contextlib.suppress(queue.Empty):  # room for what the thread is about to put
        while True:
            ready.get_nowait()
    thread.join(timeout)


def _noted(note: Path) -> tuple[int | None, str]:
    """The process that has written a note, and the stacks that were dumped there; None when there is no note, or no more."""
    with contextlib.suppress(OSError, ValueError):
        process, _, dumps = note.read_text(errors="replace").partition("\n")
        return int(process), dumps
    return None, ""


def _stack_of_reading(dumps: str) -> str:
    """The last whole stack of the thread that reads, the call made last first, up to where reading began."""
    for dump in reversed(dumps.split("Timeout (")):  # the last may be half written
        for thread in dump.partition("\n")[2].split("\n\n"):
            calls, *reading = re.split(rf'File "{re.escape(__file__)}", line \d+ in __getitem__', thread, maxsplit=1)
            if reading:
                return calls.rstrip()
    return ""


@final
class _Noting:
    """Another source, read in worker processes, who leave a note in a folder of what they are at, and where after a time."""

    def __init__(self, source: Source[Arrays], notes: Path, dump_after: float) -> None:
        self._source, self._notes, self._dump_after = source, notes, dump_after

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, item: int, /) -> Arrays:
        with (self._notes / str(item)).open("w") as note:
            note.write(f"{os.getpid()}\n")
            note.flush()
            faulthandler.dump_traceback_later(self._dump_after, repeat=True, file=note)
            try:
                return self._source[item]
            finally:
                faulthandler.cancel_dump_traceback_later()
                os.unlink(note.name)
