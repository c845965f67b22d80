"""Bytes as tokens: no vocabulary to fetch or to train, and nothing that can't be written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

_NUM_BYTES = 256


@final
class ByteTokenizer:
    """The 256 bytes of UTF-8, and 256 for the end of a document."""

    vocab_size = _NUM_BYTES + 1
    eos_id = _NUM_BYTES

    def encode(self, text: str, /) -> np.ndarray:
        """The bytes of ``text``, ``[T]`` int32. Raises UnicodeEncodeError (a ValueError) for lone surrogates."""
        return np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray, /) -> str:
        """The text of ``ids``: ids that are no byte are dropped, broken characters become U+FFFD."""
        array = np.asarray(ids, np.int64)
        return array[(array >= 0) & (array < _NUM_BYTES)].astype(np.uint8).tobytes().decode("utf-8", "replace")
