"""The seams that ax-input owns: where records come from, and how text becomes numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """A finite collection of records with random access. Grain's sources, lists and numpy arrays all fit."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> T_co: ...


class Tokenizer(Protocol):
    """Turns text into token ids and back."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that ``encode`` or ``eos_id`` gives."""
        ...

    @property
    def eos_id(self) -> int:
        """The id that ends a document."""
        ...

    def encode(self, text: str, /) -> np.ndarray:
        """The ids of ``text``, ``[T]`` int32, without an end mark."""
        ...

    def decode(self, ids: Sequence[int] | np.ndarray, /) -> str:
        """The text of ``ids``; ids that stand for no text are dropped, incomplete characters replaced."""
        ...
