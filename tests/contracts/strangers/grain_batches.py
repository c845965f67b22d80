"""Plain Grain behind a shim: its iterator is a stream of batches but for a state that is a dict."""

from __future__ import annotations

import json
from collections.abc import Mapping

import grain  # type: ignore[import-untyped]  # it ships no types
import numpy as np


class GrainBatches:
    """Fits ``BatchSource`` of ax-trainer: windows of a text, shuffled anew each epoch; of each batch, a shard's rows."""

    def __init__(
        self, text: bytes, *, batch_size: int, seq_length: int, shard_index: int = 0, shard_count: int = 1
    ) -> None:
        tokens = np.frombuffer(text, np.uint8).astype(np.int32)
        own = batch_size // shard_count
        mine = slice(shard_index * own, (shard_index + 1) * own)

        def cut(starts: np.ndarray) -> Mapping[str, np.ndarray]:
            at = starts[mine, None] * seq_length + np.arange(seq_length)
            return {"tokens": tokens[at], "targets": tokens[at + 1]}

        windows = grain.MapDataset.range((len(tokens) - 1) // seq_length).shuffle(seed=0).repeat()
        batches = windows.batch(batch_size, drop_remainder=True).map(cut)
        self._iterator = iter(batches.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))

    def __next__(self) -> Mapping[str, np.ndarray]:
        batch: Mapping[str, np.ndarray] = next(self._iterator)
        return batch

    def get_state(self) -> bytes:
        return json.dumps(self._iterator.get_state(), sort_keys=True).encode()

    def set_state(self, state: bytes, /) -> None:
        self._iterator.set_state(json.loads(state))
