"""Batches: an endless stream of the ledger's to train on, and one pass in order to evaluate on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import final

import numpy as np

from ._errors import DataError
from ._ledger import Ledger
from ._read_ahead import ReadAhead, Reader
from ._rows import Rows

_ENDLESS = 2**62


@final
class BatchStream:
    """An endless stream of batches, ``tokens`` and ``targets`` (and what else the rows have) of ``[B / shard_count, T]`` int32.

    Batches are read ahead; ``get_state`` is the position of what was received, whatever was read. States are bytes that can be
    kept, and set in another process, of which there may be another number. A state of another order (other data, seed, batch
    or sequence length) is refused.

    Args:
        ledger: What is in which batch.
        read_ahead: How they are read; by a thread, two batches ahead, unless given.
        shard_index: Which part of every batch this process gets, of ``shard_count`` equal ones.
        shard_count: How many processes share a batch.

    Raises:
        DataError: A batch can't be cut so.
    """

    def __init__(
        self, ledger: Ledger, *, read_ahead: ReadAhead | None = None, shard_index: int = 0, shard_count: int = 1
    ) -> None:
        self.ledger = ledger
        self._rows = own_rows(ledger.batch_size, shard_index, shard_count)
        self._read_ahead = ReadAhead.Config().build() if read_ahead is None else read_ahead
        self._batch = 0
        self._reader: Reader | None = None
        self._closed = False

    def __iter__(self) -> Iterator[Mapping[str, np.ndarray]]:
        return self

    def __next__(self) -> Mapping[str, np.ndarray]:
        """The next batch.

        Raises:
            StalledError: It didn't come within the deadline. The stream stands where it stood, so that one may try again.
        """
        if self._closed:
            raise ValueError("this stream of batches is closed")
        ledger, rows = self.ledger, self._rows
        step = ledger.step_of(self._batch)
        batch = ledger.batch_at(step)
        if self._reader is None:
            self._reader = self._read_ahead.read(_OwnRows(ledger, step, rows))
        own = range(ledger.batch_size)[rows]
        try:
            arrays = self._reader.next(
                f"batch {batch}", lambda: [str(span) for span in ledger.spans(batch) if span.row in own]
            )
        except BaseException:
            self._stop()
            raise
        self._batch = batch + 1
        return arrays

    def get_state(self) -> bytes:
        """The position after the last batch received, and the order that it is a position in, as JSON."""
        return json.dumps({"next": self._batch, "order": self.ledger.identity(self._batch)}, sort_keys=True).encode()

    def set_state(self, state: bytes, /) -> None:
        """Continue from where ``get_state`` was called.

        Raises:
            DataError: ``state`` is of a stream that gave other batches up to there. Phases and skips that lie ahead may differ.
        """
        batch, order = _parsed(state)
        own = self.ledger.identity(batch)
        if order != own:
            saved, current = _flat(order), _flat(own)
            differences = "; ".join(
                f"{name}: was {saved.get(name)!r}, is {current.get(name)!r}"
                for name in sorted(saved.keys() | current.keys())
                if saved.get(name) != current.get(name)
            )
            raise DataError(
                f"the saved position is one in another stream of batches ({differences}): restore the files, Python version "
                "and settings that the stream began with, or begin a new one"
            )
        self._stop()
        self._batch = batch

    def origins(self, state: bytes, /) -> Sequence[str]:
        """What the batch that follows the position ``state`` is made of, over all processes: a line per span of a document."""
        ledger = self.ledger
        return [str(span) for span in ledger.spans(ledger.batch_at(ledger.step_of(_parsed(state)[0])))]

    def epochs(self, state: bytes, /) -> float:
        """How often the batches before the position ``state`` have gone through the data, all sources together."""
        return self.ledger.mean_epochs(_parsed(state)[0])

    def close(self) -> None:
        """Stop reading ahead; the stream can't be used after."""
        self._closed = True
        self._stop()

    def _stop(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


@final
class EvaluationBatches:
    """A finite sequence of batches that can be iterated again and again; ``[B / shard_count, T]`` int32 each.

    All rows in order, the last batch filled up with rows that don't count; or, with ``max_batches``, as many rows as they hold,
    evenly spread over all.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        batch_size: int,
        max_batches: int | None = None,
        shard_index: int = 0,
        shard_count: int = 1,
    ) -> None:
        if max_batches is not None and max_batches < 1:
            raise DataError(f"max_batches: wanted at least 1 or None, got {max_batches}")
        self._source = rows
        self._batch_size = batch_size
        self._own = own_rows(batch_size, shard_index, shard_count)
        all_batches = -(-len(rows) // batch_size)
        if max_batches is None or max_batches >= all_batches:
            self._indices = np.arange(all_batches * batch_size)
        else:
            count = max_batches * batch_size
            self._indices = np.arange(count) * len(rows) // count

    def __len__(self) -> int:
        return len(self._indices) // self._batch_size

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        if not 0 <= index < len(self):
            raise IndexError(f"{len(self)} batches, asked for {index}")
        batch = self._indices[index * self._batch_size : (index + 1) * self._batch_size]
        return self._source.gather(batch[self._own])

    def __iter__(self) -> Iterator[Mapping[str, np.ndarray]]:
        return (self[index] for index in range(len(self)))


def own_rows(batch_size: int, shard_index: int, shard_count: int) -> slice:
    """The rows of a global batch that are a shard's. Raises DataError when it can't be cut so."""
    if not 0 <= shard_index < shard_count:
        raise DataError(f"shard_index: wanted 0 to {shard_count - 1} (shard_count is {shard_count}), got {shard_index}")
    if batch_size < 1 or batch_size % shard_count:
        raise DataError(
            f"batch_size: wanted a multiple of shard_count ({shard_count}) that is at least 1, got {batch_size}"
        )
    own = batch_size // shard_count
    return slice(shard_index * own, (shard_index + 1) * own)


@final
class _OwnRows:
    """The batches that are dealt from number ``first`` on, those rows of them that are a process's own."""

    def __init__(self, ledger: Ledger, first: int, rows: slice) -> None:
        self._ledger, self._first, self._rows = ledger, first, rows

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, item: int, /) -> Mapping[str, np.ndarray]:
        return self._ledger.read(self._ledger.batch_at(self._first + item), self._rows)


def _parsed(state: bytes) -> tuple[int, dict[str, object]]:
    try:
        saved = json.loads(state)
        return int(saved["next"]), dict(saved["order"])
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"not a state of a BatchStream: {state[:80]!r}") from error


def _flat(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
