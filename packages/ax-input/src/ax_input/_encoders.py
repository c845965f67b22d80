"""From a record to a document's arrays: the text of a field. (Conversations are in ``_chat``, pairs in ``_preferences``.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import ax_config
import numpy as np
from ax_config import field

from ._errors import DataError
from ._record import Record
from .protocols import Tokenizer


@final
class TextEncoder:
    """The tokens of the text in one field."""

    class Config(ax_config.Config["TextEncoder"]):
        """Which field."""

        text_field: str = field(default="text", help="where the text is in a JSON line or a row")

    def __init__(self, cfg: Config, /, *, tokenizer: Tokenizer) -> None:
        self._text_field = cfg.text_field
        self._tokenizer = tokenizer
        self.identity = ax_config.dumps(cfg)
        self.fields = (cfg.text_field,)
        self.dtypes: Mapping[str, np.dtype] = {"tokens": token_dtype(tokenizer)}

    def __call__(self, record: Record, /) -> tuple[Mapping[str, np.ndarray], int]:
        """``tokens`` ``[T]`` int32, and the text's bytes in UTF-8. Raises BadRecordError when there is no text."""
        text = record.text(self._text_field)
        return {"tokens": checked_ids(self._tokenizer.encode(text), self._tokenizer, record.origin)}, len(
            text.encode("utf-8")
        )


def token_dtype(tokenizer: Tokenizer) -> np.dtype:
    """The smallest type for a tokenizer's ids that is worth while: 2 bytes up to 65,536, else 4."""
    return np.dtype("<u2" if tokenizer.vocab_size <= 2**16 else "<u4")


def checked_ids(ids: np.ndarray, tokenizer: Tokenizer, origin: str) -> np.ndarray:
    """The ids of a text as int32. Raises DataError when they aren't ``[T]``, or outside of the tokenizer's vocabulary."""
    ids = np.asarray(ids)
    vocab_size = tokenizer.vocab_size
    if ids.ndim != 1 or (ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size):
        raise DataError(
            f"{origin}: wanted ids of shape [T] in [0, {vocab_size}) from {type(tokenizer).__name__}, got "
            f"shape {list(ids.shape)}, {ids.min()} to {ids.max()}"
        )
    return ids.astype(np.int32, copy=False)
