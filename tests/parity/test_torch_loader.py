"""PyTorch's DataLoader behind a shim is a source of batches: it passes the kits that ours do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch
from ax_input.testing import check_batch_stream
from ax_trainer.testing import check_batch_source
from torch.utils.data import DataLoader, Dataset, Sampler

NUM_ROWS, SEQ_LENGTH, BATCH_SIZE = 41, 8, 8


class Windows(Dataset[Mapping[str, torch.Tensor]]):
    """Rows of numbers."""

    def __len__(self) -> int:
        return NUM_ROWS

    def __getitem__(self, index: int) -> Mapping[str, torch.Tensor]:
        window = torch.arange(SEQ_LENGTH + 1, dtype=torch.int32) + index * SEQ_LENGTH
        return {"tokens": window[:-1], "targets": window[1:]}


class OwnRows(Sampler[list[int]]):
    """Batches of a new order each epoch; of each, a shard's rows."""

    def __init__(self, shard_index: int, shard_count: int) -> None:
        own = BATCH_SIZE // shard_count
        self._own = slice(shard_index * own, (shard_index + 1) * own)
        self.epoch = 0

    def __len__(self) -> int:
        return NUM_ROWS // BATCH_SIZE

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        for batch in range(len(self)):
            yield order[batch * BATCH_SIZE : (batch + 1) * BATCH_SIZE][self._own]


class LoaderBatches:
    """Fits ``BatchSource``: it counts, and gets to a position by going there."""

    def __init__(self, *, shard_index: int = 0, shard_count: int = 1, num_workers: int = 0) -> None:
        self._sampler = OwnRows(shard_index, shard_count)
        self._loader = DataLoader(Windows(), batch_sampler=self._sampler, num_workers=num_workers)
        self._given = 0
        self._batches: Iterator[Mapping[str, torch.Tensor]] | None = None

    def __next__(self) -> Mapping[str, np.ndarray]:
        if self._batches is None:
            self._sampler.epoch, gone = divmod(self._given, len(self._sampler))
            self._batches = iter(self._loader)
            for _ in range(gone):
                next(self._batches)
        batch = next(self._batches, None)
        if batch is None:
            self._batches = None
            return next(self)
        self._given += 1
        return {name: tensor.numpy() for name, tensor in batch.items()}

    def get_state(self) -> bytes:
        return json.dumps(self._given).encode()

    def set_state(self, state: bytes, /) -> None:
        self._given, self._batches = json.loads(state), None


def test_it_passes_the_kit_for_streams() -> None:
    def make_stream(*, shard_index: int, shard_count: int) -> LoaderBatches:
        return LoaderBatches(shard_index=shard_index, shard_count=shard_count)

    check_batch_stream(make_stream, num_batches=7, shard_counts=(1, 2, 4, 8))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_it_passes_the_trainers_kit(num_workers: int) -> None:
    check_batch_source(lambda: LoaderBatches(num_workers=num_workers), num_batches=3)
