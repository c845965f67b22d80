"""The ledger: what is in batch ``s``, for any ``s``, computed directly.

    batch number ─▶ rows: source, and how-manieth row of it      (``Mixing``: quotas in phases)
                 ─▶ epoch, and the row of that source            (a permutation for each source and epoch)
                 ─▶ spans of documents                           (``PackingIndex``, made once)
                 ─▶ tokens and targets                           (``Rows``)

Nothing of it remembers anything, and nothing knows how many processes there are: each reads those rows of a batch that are its
own. So the stream is the same for any number of them, a position is a number, and going there costs nothing.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, final

import numpy as np

from ._errors import DataError
from ._mixing import Mixing, Phase, phases_by_size
from ._permutation import key_of, permute
from ._rows import Rows

DEFAULT_BLOCK_ROWS = 1_000
_AT_ONCE = 64


class Span(NamedTuple):
    """A part of a batch.

    The row's places from ``offset`` on are the places ``begin`` to ``end`` of a document, that is, have its tokens ``begin`` to ``end``
    as targets; one past the last token is the end mark.
    """

    row: int
    source: str
    epoch: int
    document: int
    origin: str
    begin: int
    end: int
    offset: int

    def __str__(self) -> str:
        """A line for people."""
        tokens = f"tokens {self.begin:,} to {self.end:,}"
        return f"row {self.row}: {self.source}: {self.origin}, document {self.document:,}, {tokens}, epoch {self.epoch}"


class _Place(NamedTuple):
    source: str
    epochs: np.ndarray
    rows: np.ndarray
    where: np.ndarray


class _Window(NamedTuple):
    """Of some batches from ``first`` on, ``[N, B]`` each: the sources of their rows (as the mixing counts them), epochs, and rows there."""

    first: int
    sources: np.ndarray
    epochs: np.ndarray
    rows: np.ndarray


@final
class Ledger:
    """The content of every batch of an endless stream.

    Args:
        sources: What the rows come from, by name. The order doesn't matter.
        batch_size: Rows in a batch, over all processes.
        seed: Of the order. What one source gives in which order doesn't depend on what others there are.
        shuffle: A new order of a source's rows every epoch; else that of the packing.
        phases: Which share of each source, from when on; none means in proportion to the sources' sizes.
        block_rows: How many rows hold these shares exactly; without phases as many more as give the smallest source a row.
        skip: Ranges ``(begin, end)`` of batches that are left out: after the one before comes the one after.

    Raises:
        DataError: The sources have too little text or don't fit together, or a number is out of range.
    """

    def __init__(
        self,
        sources: Mapping[str, Rows],
        *,
        batch_size: int,
        seed: int,
        shuffle: bool = True,
        phases: Sequence[Phase] = (),
        block_rows: int = DEFAULT_BLOCK_ROWS,
        skip: Sequence[tuple[int, int]] = (),
    ) -> None:
        _check_sources(sources, batch_size)
        self.batch_size = batch_size
        self.seq_length = next(iter(sources.values())).seq_length
        self.sources: Mapping[str, Rows] = dict(sources)
        """What the rows come from, by name."""
        self._seed = seed
        self._shuffle = shuffle
        if not phases:
            sizes = {name: len(rows) for name, rows in sources.items()}
            phases = phases_by_size(sizes)
            block_rows = max(block_rows, -(-sum(sizes.values()) // min(sizes.values())))
        self._mixing = Mixing(list(sources), phases, batch_size=batch_size, block_rows=block_rows, seed=seed)
        nothing = np.empty((0, 0), np.int64)
        self._window = _Window(-1, nothing, nothing, nothing)
        """The batches last dealt and those around: whoever reads them in order finds most of the work done."""
        self._skip = _merged(skip)
        self._removed = [0, *itertools.accumulate(end - begin for begin, end in self._skip)]
        """How many batches the first ranges leave out together."""
        self._gaps = [begin - removed for (begin, _), removed in zip(self._skip, self._removed, strict=False)]
        """How many batches are dealt before each range."""

    def read(self, batch: int, rows: slice = slice(None)) -> Mapping[str, np.ndarray]:
        """The arrays of batch ``batch``, or of those of its ``rows``: ``[B, T]`` int32."""
        arrays: dict[str, np.ndarray] = {}
        count = len(range(self.batch_size)[rows])
        for place in self._places(batch, rows):
            gathered = self.sources[place.source].gather(place.rows)
            if len(place.rows) == count:
                return gathered
            for name, values in gathered.items():
                whole = arrays.setdefault(name, np.empty((count, self.seq_length), values.dtype))
                whole[place.where] = values
        return arrays

    def spans(self, batch: int) -> list[Span]:
        """What batch ``batch`` is made of, row by row."""
        found = []
        for place in self._places(batch, slice(None)):
            source = self.sources[place.source]
            for where, epoch, row in zip(place.where.tolist(), place.epochs.tolist(), place.rows.tolist(), strict=True):
                for span in source.spans(row):
                    origin = source.documents.origin(span.document)
                    where_from = (place.source, epoch, span.document, origin)
                    found.append(Span(where, *where_from, span.begin, span.end, span.offset))
        return sorted(found)

    def epochs(self, batch: int) -> dict[str, float]:
        """How often the batches before ``batch`` have gone through each source: 1.5 in the middle of the second time.

        Batches that were skipped count, as if they had been dealt.
        """
        counts = self._mixing.counts(batch).tolist()
        return {name: count / len(self.sources[name]) for name, count in zip(self._mixing.sources, counts, strict=True)}

    def mean_epochs(self, batch: int) -> float:
        """The same of all sources together: rows that were dealt, by rows that there are."""
        return batch * self.batch_size / sum(map(len, self.sources.values()))

    def batch_at(self, step: int) -> int:
        """The number of the batch that is dealt as number ``step``, counted from 0: the same, plus what is skipped before."""
        return step + self._removed[bisect.bisect_right(self._gaps, step)]

    def step_of(self, batch: int) -> int:
        """How many batches are dealt before ``batch``."""
        i = bisect.bisect_right([begin for begin, _ in self._skip], batch)
        if i and batch < self._skip[i - 1][1]:
            return self._gaps[i - 1]
        return batch - self._removed[i]

    def identity(self, batch: int) -> dict[str, object]:
        """All that the batches before ``batch`` depend on. What lies ahead (a later phase, a later skip) is not part of it."""
        return {
            "batch_size": self.batch_size,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "phases": self._mixing.identity(batch),
            "sources": {name: self.sources[name].identity for name in self._mixing.used(batch)},
            "skip": [[begin, min(end, batch)] for begin, end in self._skip if begin < batch],
        }

    def _places(self, batch: int, rows: slice) -> Iterator[_Place]:
        """The ``rows`` of a batch, by source."""
        first = batch - batch % _AT_ONCE
        window = self._window  # which another thread may exchange meanwhile
        if window.first != first:
            window = self._window = self._dealt(first)
        sources_B, epochs_B, rows_B = (values[batch - first, rows] for values in window[1:])
        for i in np.unique(sources_B).tolist():
            where = np.flatnonzero(sources_B == i)
            yield _Place(self._mixing.sources[i], epochs_B[where], rows_B[where], where)

    def _dealt(self, first: int) -> _Window:
        """What is in the batches from ``first`` on: as many at once as cost hardly more than one."""
        each = [self._mixing.rows(first + i) for i in range(_AT_ONCE)]
        sources_NB, nth_NB = (np.stack(values) for values in zip(*each, strict=True))
        epochs_NB, rows_NB = np.empty_like(nth_NB), np.empty_like(nth_NB)
        for i in np.unique(sources_NB).tolist():
            name = self._mixing.sources[i]
            of_source = sources_NB == i
            size = len(self.sources[name])
            epochs, places = np.divmod(nth_NB[of_source], size)
            if self._shuffle:
                for epoch in np.unique(epochs).tolist():
                    within = epochs == epoch
                    key = key_of("order", self._seed, name, epoch)
                    places[within] = permute(places[within], size=size, key=key)
            epochs_NB[of_source], rows_NB[of_source] = epochs, places
        return _Window(first, sources_NB, epochs_NB, rows_NB)


def _check_sources(sources: Mapping[str, Rows], batch_size: int) -> None:
    if not sources:
        raise DataError("wanted at least one source to deal out, got none")
    if batch_size < 1:
        raise DataError(f"batch_size: wanted at least 1, got {batch_size}")
    for name, rows in sources.items():
        if not len(rows):
            raise DataError(f"the source {name!r} has no documents to make rows of")
    kinds = {name: (rows.seq_length, rows.array_names) for name, rows in sources.items()}
    if len(set(kinds.values())) > 1:
        raise DataError(f"wanted sources with rows of one length and kind, got {kinds}")
    num_rows = sum(len(rows) for rows in sources.values())
    if num_rows < batch_size:
        num_places = sum(rows.index.num_places for rows in sources.values())
        raise DataError(
            f"too little text to train on: {num_places:,} tokens are {num_rows} rows of {next(iter(kinds.values()))[0]}, less "
            f"than one batch of {batch_size}; give more text, or lower seq_length or batch_size"
        )


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers as ranges in order that don't touch."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if not 0 <= begin < end:
            raise DataError(f"skip: wanted ranges (begin, end) of batches with 0 <= begin < end, got ({begin}, {end})")
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
