"""Every line of a text as a document, of bytes: no more than documents need."""

from __future__ import annotations

import hashlib

import numpy as np


class Lines:
    """Fits ``TokenDocuments`` of ax-input."""

    def __init__(self, text: bytes) -> None:
        self._lines = text.splitlines()
        self.lengths = np.array([len(line) for line in self._lines], np.int64)
        self.fingerprint = hashlib.sha256(text).hexdigest()

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int, /) -> dict[str, np.ndarray]:
        return {"tokens": np.frombuffer(self._lines[index], np.uint8).astype(np.int32)}

    def origin(self, index: int, /) -> str:
        return f"line {index + 1}"
