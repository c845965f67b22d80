"""Examples of one shape (images, spectrograms, preference pairs), dealt out like text is: any batch is computed from its number.

``Mapped`` makes other examples of examples. ``ExampleStream`` is an endless shuffled stream of batches to train on, ``ExampleBatches`` one pass in
order to evaluate on. Both stack what examples have under the same name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, final, runtime_checkable

import numpy as np

from ._batches import own_rows
from ._errors import DataError
from ._permutation import key_of, permute
from ._read_ahead import ReadAhead, Reader
from ._rows import IGNORED_TARGET
from .protocols import Source, SupportsFingerprint

Example = Mapping[str, np.ndarray]
_ENDLESS = 2**62


@runtime_checkable
class SupportsOrigin(Protocol):
    """Examples that know where they come from."""

    def origin(self, index: int, /) -> str:
        """The file, or whatever it is."""
        ...


@final
class Mapped:
    """``examples``, with ``function`` applied to each when it is asked for: ``function`` depends on nothing else.

    ``name`` stands for the function in the fingerprint: another function, another name.
    """

    def __init__(self, examples: Source[Example], function: Callable[[Example], Example], *, name: str) -> None:
        self._examples = examples
        self._function = function
        self.fingerprint = f"{_fingerprint(examples)}/{name}"
        """Changes with the examples and the function's name."""

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int, /) -> Example:
        return self._function(self._examples[index])

    def origin(self, index: int, /) -> str:
        """Where the example came from."""
        return _origin(self._examples, index)


@final
class ExampleStream:
    """An endless stream of batches of examples, in a new order every epoch, epochs end to end. A position holds for any number of processes.

    Args:
        examples: Arrays by name, of one shape each.
        batch_size: Examples in a batch, over all processes.
        seed: Of the order.
        shuffle: Whether there is a new order every epoch, or always that of the examples.
        read_ahead: How they are read; by a thread, two batches ahead, unless given.
        shard_index: Which part of every batch this process gets, of ``shard_count`` equal ones.
        shard_count: How many processes share a batch.

    Raises:
        DataError: There are no examples, or a batch can't be cut so.
    """

    def __init__(
        self,
        examples: Source[Example],
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        read_ahead: ReadAhead | None = None,
        shard_index: int = 0,
        shard_count: int = 1,
    ) -> None:
        rows = own_rows(batch_size, shard_index, shard_count)
        if not len(examples):
            raise DataError("wanted examples to train on, got none")
        self._examples = examples
        self._order = {
            "data": _fingerprint(examples),
            "size": len(examples),
            "batch_size": batch_size,
            "seed": seed if shuffle else None,
        }
        self._batches = _Batches(examples, batch_size, rows, seed if shuffle else None)
        self._read_ahead = ReadAhead.Config().build() if read_ahead is None else read_ahead
        self._batch = 0
        self._reader: Reader | None = None

    def __iter__(self) -> Iterator[Example]:
        return self

    def __next__(self) -> Example:
        """The next batch: of each array ``[B / shard_count, …]``."""
        if self._reader is None:
            self._reader = self._read_ahead.read(_From(self._batches, self._batch))
        batch = self._batch
        try:
            arrays = self._reader.next(f"batch {batch}", lambda: self._origins(batch))
        except BaseException:
            self.close()
            raise
        self._batch += 1
        return arrays

    def get_state(self) -> bytes:
        """The position after the last batch received, and the order that it is a position in, as JSON."""
        return json.dumps({"next": self._batch, "order": self._order}, sort_keys=True).encode()

    def set_state(self, state: bytes, /) -> None:
        """Continue from where ``get_state`` was called. Raises DataError when ``state`` is of another order."""
        try:
            saved = json.loads(state)
            batch, order = int(saved["next"]), saved["order"]
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"not a state of an ExampleStream: {state[:80]!r}") from error
        if order != self._order:
            raise DataError(
                f"the saved position is one in another stream of batches: {order}, this one is {self._order}"
            )
        self.close()
        self._batch = batch

    def origins(self, state: bytes, /) -> Sequence[str]:
        """What the batch that follows the position ``state`` is made of, over all processes: a line an example."""
        return self._origins(int(json.loads(state)["next"]))

    def close(self) -> None:
        """Stop reading ahead."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _origins(self, batch: int) -> Sequence[str]:
        return [_origin(self._examples, index) for index in self._batches.indices(batch).tolist()]


@final
class ExampleBatches:
    """All examples in order, as batches that can be gone over again and again: of each array ``[B / shard_count, …]``.

    The last batch is filled up with the first example; its ``targets`` are -1 there, which doesn't count. ``max_batches`` takes so many
    examples as they hold, evenly spread.
    """

    def __init__(
        self,
        examples: Source[Example],
        *,
        batch_size: int,
        max_batches: int | None = None,
        shard_index: int = 0,
        shard_count: int = 1,
    ) -> None:
        self._rows = own_rows(batch_size, shard_index, shard_count)
        if max_batches is not None and max_batches < 1:
            raise DataError(f"max_batches: wanted at least 1 or None, got {max_batches}")
        self._examples = examples
        size = len(examples)
        count = -(-size // batch_size)
        if max_batches is None or max_batches >= count:
            indices = np.arange(count * batch_size)
        else:
            indices = np.arange(max_batches * batch_size) * size // (max_batches * batch_size)
        self._indices = indices.reshape(-1, batch_size)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int, /) -> Example:
        if not 0 <= index < len(self):
            raise IndexError(f"{len(self)} batches, asked for {index}")
        rows = self._indices[index, self._rows]
        outside = rows >= len(self._examples)
        batch = _stacked(self._examples, np.where(outside, 0, rows))
        if outside.any():
            batch["targets"][outside] = IGNORED_TARGET
        return batch

    def __iter__(self) -> Iterator[Example]:
        return (self[index] for index in range(len(self)))


class _Batches:
    """Batch ``s`` of the stream, for any ``s``: a source that doesn't end."""

    def __init__(self, examples: Source[Example], batch_size: int, rows: slice, seed: int | None) -> None:
        self._examples, self._batch_size, self._rows, self._seed = examples, batch_size, rows, seed

    def indices(self, batch: int) -> np.ndarray:
        """The examples in a batch, over all processes."""
        size = len(self._examples)
        epochs, places = np.divmod(batch * self._batch_size + np.arange(self._batch_size), size)
        if self._seed is not None:
            for epoch in np.unique(epochs).tolist():
                within = epochs == epoch
                places[within] = permute(places[within], size=size, key=key_of("examples", self._seed, epoch))
        return places

    def __getitem__(self, batch: int, /) -> Example:
        return _stacked(self._examples, self.indices(batch)[self._rows])


class _From:
    """Batches from one on, counted from 0."""

    def __init__(self, batches: _Batches, first: int) -> None:
        self._batches, self._first = batches, first

    def __len__(self) -> int:
        return _ENDLESS - self._first

    def __getitem__(self, index: int, /) -> Example:
        return self._batches[self._first + index]


def _stacked(examples: Source[Example], indices: np.ndarray) -> dict[str, np.ndarray]:
    rows = [examples[index] for index in indices.tolist()]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _fingerprint(examples: Source[Example]) -> str:
    if isinstance(examples, SupportsFingerprint):
        return examples.fingerprint
    return f"{type(examples).__qualname__} of {len(examples)}"


def _origin(examples: Source[Example], index: int) -> str:
    return examples.origin(index) if isinstance(examples, SupportsOrigin) else f"example {index}"
