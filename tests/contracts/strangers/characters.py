"""A tokenizer of single characters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Characters:
    """Fits ``Tokenizer`` of ax-input; characters that it doesn't know become spaces."""

    def __init__(self, alphabet: str) -> None:
        self._ids = {character: index for index, character in enumerate(alphabet)}
        self._alphabet = alphabet
        self.eos_id = len(alphabet)
        self.vocab_size = len(alphabet) + 1

    def encode(self, text: str, /) -> np.ndarray:
        return np.array([self._ids.get(character, self._ids[" "]) for character in text], np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray, /) -> str:
        return "".join(self._alphabet[index] for index in ids if 0 <= index < self.eos_id)
