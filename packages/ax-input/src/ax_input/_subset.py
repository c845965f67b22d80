"""A choice of documents, by length, by content or at random; and corpora one after another.

Each fits ``TokenDocuments`` and reads a document when it is asked for. As functions of documents they are transforms:
``partial_for(by_length, maximum=4096)`` in a config.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
from collections.abc import Callable, Mapping
from typing import final

import numpy as np

from ._errors import DataError
from ._permutation import key_of, permute
from .protocols import SupportsParts, TokenDocuments


@final
class Subset:
    """Some of ``documents``: those at ``indices`` (``[N]``), in that order."""

    def __init__(self, documents: TokenDocuments, indices: np.ndarray) -> None:
        self._documents = documents
        self._indices = np.asarray(indices, np.int64)
        self.lengths: np.ndarray = np.asarray(documents.lengths)[self._indices]
        """The tokens of each document, ``[N]`` int64."""

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        return self._documents[self._at(index)]

    def part(self, index: int, begin: int, end: int, /) -> Mapping[str, np.ndarray]:
        """The arrays of a document from ``begin`` to ``end``."""
        return part_of(self._documents, self._at(index), begin, end)

    def origin(self, index: int, /) -> str:
        """Where document ``index`` came from."""
        return self._documents.origin(self._at(index))

    @functools.cached_property
    def fingerprint(self) -> str:
        """Changes with the documents and the choice."""
        digest = hashlib.blake2b(self._documents.fingerprint.encode(), digest_size=16, person=b"subset")
        digest.update(self._indices.astype("<i8").tobytes())
        return digest.hexdigest()

    def _at(self, index: int) -> int:
        if not 0 <= index < len(self):
            raise IndexError(f"{len(self)} documents, asked for {index}")
        return int(self._indices[index])


@final
class Concatenated:
    """The documents of several corpora, one corpus after another. They must have arrays of the same names."""

    def __init__(self, *corpora: TokenDocuments) -> None:
        if not corpora:
            raise DataError("wanted corpora to join, got none")
        self._corpora = corpora
        self._ends = list(itertools.accumulate(len(corpus) for corpus in corpora))
        self.lengths: np.ndarray = np.concatenate([np.asarray(corpus.lengths) for corpus in corpora])
        """The tokens of each document, ``[D]`` int64."""

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        corpus, inside = self._at(index)
        return corpus[inside]

    def part(self, index: int, begin: int, end: int, /) -> Mapping[str, np.ndarray]:
        """The arrays of a document from ``begin`` to ``end``."""
        corpus, inside = self._at(index)
        return part_of(corpus, inside, begin, end)

    def origin(self, index: int, /) -> str:
        """Where document ``index`` came from."""
        corpus, inside = self._at(index)
        return corpus.origin(inside)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Changes with any of the corpora, and their order."""
        digest = hashlib.blake2b(digest_size=16, person=b"concatenated")
        for corpus in self._corpora:
            digest.update(f"{corpus.fingerprint}\0".encode())
        return digest.hexdigest()

    def _at(self, index: int) -> tuple[TokenDocuments, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"{len(self)} documents, asked for {index}")
        which = bisect.bisect_right(self._ends, index)
        return self._corpora[which], index - (self._ends[which - 1] if which else 0)


def by_length(documents: TokenDocuments, /, *, minimum: int = 1, maximum: int | None = None) -> Subset:
    """The documents of ``minimum`` to ``maximum`` tokens, both included."""
    lengths = np.asarray(documents.lengths)
    kept = lengths >= minimum
    if maximum is not None:
        kept &= lengths <= maximum
    return Subset(documents, np.flatnonzero(kept))


def where(documents: TokenDocuments, /, *, keep: Callable[[Mapping[str, np.ndarray]], bool]) -> Subset:
    """The documents for whose arrays ``keep`` is true. It reads all of them, once."""
    return Subset(documents, np.array([i for i in range(len(documents)) if keep(documents[i])], np.int64))


def subsample(documents: TokenDocuments, /, *, fraction: float, seed: int = 0) -> Subset:
    """A random part of the documents, in order: ``round(fraction · D)`` of them.

    A smaller fraction with the same seed is a part of a larger one.
    """
    if not 0.0 <= fraction <= 1.0:
        raise DataError(f"fraction: wanted 0 to 1, got {fraction}")
    size = len(documents)
    first = np.arange(round(fraction * size))
    chosen = permute(first, size=size, key=key_of("subsample", seed)) if len(first) else first
    return Subset(documents, np.sort(chosen))


def part_of(documents: TokenDocuments, index: int, begin: int, end: int) -> Mapping[str, np.ndarray]:
    """The arrays of a document from ``begin`` to ``end``, read as a part where that can be."""
    if isinstance(documents, SupportsParts):
        return documents.part(index, begin, end)
    return {name: array[begin:end] for name, array in documents[index].items()}
