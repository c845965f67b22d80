"""Batches in plain Python: windows of a text at random places. Its state is that of Python's own random numbers."""

from __future__ import annotations

import json
import random

import numpy as np


class RandomWindows:
    """Fits ``BatchSource`` of ax-trainer."""

    def __init__(self, text: bytes, *, batch_size: int, seq_length: int, seed: int = 0) -> None:
        self._text = text
        self._batch_size = batch_size
        self._seq_length = seq_length
        self._random = random.Random(seed)

    def __next__(self) -> dict[str, np.ndarray]:
        starts = [self._random.randrange(len(self._text) - self._seq_length) for _ in range(self._batch_size)]
        rows = np.array([list(self._text[start : start + self._seq_length + 1]) for start in starts], np.int32)
        return {"tokens": rows[:, :-1], "targets": rows[:, 1:]}

    def get_state(self) -> bytes:
        return json.dumps(self._random.getstate()).encode()

    def set_state(self, state: bytes, /) -> None:
        version, numbers, gauss = json.loads(state)
        self._random.setstate((version, tuple(numbers), gauss))
