"""Rows of tokens and targets: what a packing index says, filled in from the documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from ._errors import DataError
from ._packing import Packing, PackingIndex
from .protocols import SupportsParts, TokenDocuments

IGNORED_TARGET = -1
"""The target of a place that doesn't count."""


class RowSpan(NamedTuple):
    """A part of a row: the places ``begin`` to ``end`` of a document (see ``Packing``), from ``offset`` on."""

    document: int
    begin: int
    end: int
    offset: int


@final
class Rows:
    """Packed documents, with random access to each row.

    A row is ``tokens`` and ``targets``, ``[T]`` int32, and if the packing says so ``segments`` (1, 2, … for the documents in it, 0
    where nothing is) and ``positions`` (from 0 in each segment). A target of -1 doesn't count: where nothing is, and where a
    document's ``weights`` are 0 (a document's end mark counts if its last token does).

    Args:
        documents: What is in the rows.
        packing: How it is laid into them, and whether segments are told.
        seq_length: Places of a row.
        eos_id: The end mark.
        seed: Of the packing.
        cache: A folder to keep the index in.
    """

    def __init__(
        self,
        documents: TokenDocuments,
        *,
        packing: Packing,
        seq_length: int,
        eos_id: int,
        seed: int = 0,
        cache: Path | None = None,
    ) -> None:
        self.documents = documents
        self.seq_length = seq_length
        self.array_names = packing.cfg.arrays()
        self.index: PackingIndex = packing.pack_documents(documents, seq_length=seq_length, seed=seed, cache=cache)
        self._packing = packing.identity(seq_length=seq_length, seed=seed)
        self._lengths = documents.lengths
        self._part = documents.part if isinstance(documents, SupportsParts) else _whole(documents)
        self._eos_id = eos_id
        self._positions = np.arange(seq_length, dtype=np.int32)

    @property
    def identity(self) -> dict[str, object]:
        """All that the rows depend on: where it is equal, they are."""
        return {"data": self.documents.fingerprint, **self._packing}

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, row: int, /) -> Mapping[str, np.ndarray]:
        """Row ``row``: its arrays, ``[T]`` int32."""
        if not 0 <= row < len(self):
            raise IndexError(f"{len(self)} rows, asked for {row}")
        return {name: values[0] for name, values in self.gather(np.array([row])).items()}

    def gather(self, rows: np.ndarray, /) -> Mapping[str, np.ndarray]:
        """Several rows: their arrays, ``[B, T]`` int32. A number past the last row gives one in which nothing counts."""
        shape = (len(rows), self.seq_length)
        tokens_BT = np.full(shape, self._eos_id, np.int32)
        targets_BT = np.full(shape, IGNORED_TARGET, np.int32)
        more = [np.zeros(shape, np.int32) for _ in self.array_names[2:]]  # segments and positions, or nothing
        for b, row in enumerate(rows.tolist()):
            if row >= len(self):
                continue
            for segment, (document, begin, end, offset) in enumerate(self.spans(row), 1):
                places = slice(offset, offset + end - begin)
                self._fill(tokens_BT[b, places], targets_BT[b, places], document, begin, end)
                if more:
                    segments_BT, positions_BT = more
                    segments_BT[b, places] = segment
                    positions_BT[b, places] = self._positions[: end - begin]
        return dict(zip(self.array_names, (tokens_BT, targets_BT, *more), strict=True))

    def spans(self, row: int, /) -> Iterator[RowSpan]:
        """What row ``row`` is made of, in order."""
        index = self.index
        which = slice(int(index.row_starts[row]), int(index.row_starts[row + 1]))
        offset = 0
        for document, begin, size in zip(
            index.documents[which].tolist(), index.begins[which].tolist(), index.sizes[which].tolist(), strict=True
        ):
            yield RowSpan(document, begin, begin + size, offset)
            offset += size

    def _fill(self, tokens_N: np.ndarray, targets_N: np.ndarray, document: int, begin: int, end: int) -> None:
        """Write the places ``begin`` to ``end`` of a document; each has an input, the token before, and a target."""
        length = int(self._lengths[document])
        first, last = max(begin - 1, 0), min(end, length)
        arrays = self._part(document, first, last)
        part = arrays["tokens"]
        if len(part) != last - first:
            raise DataError(
                f"{self.documents.origin(document)}: document {document} has {length} tokens by its corpus's lengths, but "
                f"only {first + len(part)} were there: the corpus is damaged, prepare it anew"
            )
        tokens_N[int(begin == 0) :] = part[: end - 1 - first]
        targets_N[: last - begin] = part[begin - first :]
        if end > length:
            targets_N[-1] = self._eos_id
        if "weights" in arrays:
            weights = arrays["weights"]
            unweighted = weights[begin - first :] == 0
            targets_N[: last - begin][unweighted] = IGNORED_TARGET
            if end > length and len(weights) and weights[-1] == 0:
                targets_N[-1] = IGNORED_TARGET


def _whole(documents: TokenDocuments) -> Callable[[int, int, int], Mapping[str, np.ndarray]]:
    def part(index: int, begin: int, end: int) -> Mapping[str, np.ndarray]:
        return {name: array[begin:end] for name, array in documents[index].items()}

    return part
