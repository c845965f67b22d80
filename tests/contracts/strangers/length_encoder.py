"""A document that tells how long its lines are: one token each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from ax_input import Record


class LengthEncoder:
    """Fits ``Encoder`` of ax-input."""

    identity = "lengths of lines, up to 255"
    fields = ("text",)
    dtypes: Mapping[str, np.dtype] = {"tokens": np.dtype("u1"), "weights": np.dtype("<f4")}

    def __call__(self, record: Record, /) -> tuple[Mapping[str, np.ndarray], int]:
        text = record.text("text")
        lengths = np.array([min(len(line), 255) for line in text.splitlines()], np.int32)
        return {"tokens": lengths, "weights": (lengths > 0).astype(np.float32)}, len(text.encode())
