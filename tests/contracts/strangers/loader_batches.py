"""Batches of a loader in the manner of PyTorch's: an iterable that is gone through once an epoch, and knows no position.

The shim counts, and gets to a position by going there: what a loader can do. ``Loader`` is such a loader in plain Python; tests/parity has
PyTorch's own in its place.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np


class LoaderBatches:
    """Fits ``BatchSource`` of ax-trainer. ``set_epoch`` is told the epoch before the loader is gone through."""

    def __init__(self, loader: Iterable[Mapping[str, object]], *, set_epoch: Callable[[int], None]) -> None:
        self._loader, self._set_epoch = loader, set_epoch
        self._epoch, self._given = 0, 0
        self._batches: Iterator[Mapping[str, object]] | None = None

    def __next__(self) -> Mapping[str, np.ndarray]:
        if self._batches is None:
            self._set_epoch(self._epoch)
            self._batches = iter(self._loader)
            for _ in range(self._given):
                next(self._batches)
        try:
            batch = next(self._batches)
        except StopIteration:
            self._epoch, self._given, self._batches = self._epoch + 1, 0, None
            return next(self)
        self._given += 1
        return {name: np.asarray(values) for name, values in batch.items()}

    def get_state(self) -> bytes:
        return json.dumps({"epoch": self._epoch, "given": self._given}).encode()

    def set_state(self, state: bytes, /) -> None:
        position = json.loads(state)
        self._epoch, self._given, self._batches = position["epoch"], position["given"], None


class Sampler:
    """A new order of ``num_rows`` rows each epoch, and of each ``batch_size`` of them those of one rank, as a distributed sampler does."""

    def __init__(self, num_rows: int, *, batch_size: int, rank: int = 0, num_ranks: int = 1) -> None:
        self._num_rows, self._batch_size, self._rank, self._num_ranks = num_rows, batch_size, rank, num_ranks
        self._epoch = 0

    def set_epoch(self, epoch: int, /) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return self._num_rows // self._batch_size * self._batch_size // self._num_ranks

    def __iter__(self) -> Iterator[int]:
        order = random.Random(self._epoch).sample(range(self._num_rows), self._num_rows)
        own = self._batch_size // self._num_ranks
        for start in range(0, self._num_rows - self._batch_size + 1, self._batch_size):
            first = start + self._rank * own
            yield from order[first : first + own]


class Windows:
    """A map-style dataset: windows of a text."""

    def __init__(self, text: bytes, *, seq_length: int) -> None:
        self._tokens, self._seq_length = np.frombuffer(text, np.uint8).astype(np.int32), seq_length

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // self._seq_length

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        window = self._tokens[index * self._seq_length :][: self._seq_length + 1]
        return {"tokens": window[:-1], "targets": window[1:]}


class Loader:
    """Draws from a sampler, and stacks what the dataset has there."""

    def __init__(self, dataset: Windows, *, batch_size: int, sampler: Sampler) -> None:
        self._dataset, self._batch_size, self._sampler = dataset, batch_size, sampler

    def __iter__(self) -> Iterator[Mapping[str, np.ndarray]]:
        rows: list[Mapping[str, np.ndarray]] = []
        for index in self._sampler:
            rows.append(self._dataset[index])
            if len(rows) == self._batch_size:
                yield {name: np.stack([row[name] for row in rows]) for name in rows[0]}
                rows = []


def loader_batches(
    text: bytes, *, batch_size: int, seq_length: int, shard_index: int = 0, shard_count: int = 1
) -> LoaderBatches:
    """Batches of windows of a text."""
    dataset = Windows(text, seq_length=seq_length)
    sampler = Sampler(len(dataset), batch_size=batch_size, rank=shard_index, num_ranks=shard_count)
    loader = Loader(dataset, batch_size=batch_size // shard_count, sampler=sampler)
    return LoaderBatches(loader, set_epoch=sampler.set_epoch)
