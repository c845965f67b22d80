"""Which parts of which documents are in which row: decided once, from the documents' lengths alone.

A document of ``n`` tokens is ``n + 1`` *places*. Each place has an input and a target, and the end mark both begins and ends it::

    place     0    1    2   …   n
    input    eos  t[0] t[1] … t[n-1]
    target   t[0] t[1] t[2] …  eos

So every token of every document, and every end, is a target exactly once. A ``Packing`` cuts documents into *spans* of places and
lays the spans into rows of ``seq_length`` places:

* ``"stream"``: the documents one after another in order, cut wherever a row ends. No place is lost but at the very end.
* ``"first_fit"``, ``"best_fit"``: what is longer than a row is cut into full rows and a remainder; then, window by window of so many
  documents in a seeded order, the remainders, longest first, go into the first row with room, or into the one where least room
  remains (Johnson 1973; for language models: Ding et al., "Fewer truncations improve language modeling", arXiv:2404.10830).

The result is a ``PackingIndex``: four flat arrays, which can be kept on disk, and read from there without being held in memory.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import ax_config
import numpy as np
from ax_config import field

from ._errors import DataError
from ._permutation import key_of, permute
from .protocols import TokenDocuments

Mode = Literal["stream", "first_fit", "best_fit"]
Long = Literal["split", "error", "leave_out"]


@final
@dataclass(frozen=True, eq=False)
class PackingIndex:
    """The spans of every row. Span ``s`` is the places ``begins[s]`` to ``begins[s] + sizes[s]`` of document ``documents[s]``.

    The spans of row ``r`` are those from ``row_starts[r]`` to ``row_starts[r + 1]``, and stand in it one after another.
    """

    row_starts: np.ndarray
    """``[R + 1]`` int64."""
    documents: np.ndarray
    """``[S]`` int64."""
    begins: np.ndarray
    """``[S]`` int64."""
    sizes: np.ndarray
    """``[S]`` int32."""
    seq_length: int
    num_left_out: int = 0
    """Documents that are longer than a row, and were to be left out."""
    folder: str | None = None
    """Where the arrays lie, when they are read from a disk."""

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.row_starts) - 1

    @property
    def num_places(self) -> int:
        """Places that are filled: tokens and end marks."""
        return int(self.sizes.sum(dtype=np.int64))

    @property
    def efficiency(self) -> float:
        """The part of all rows' places that is filled."""
        return self.num_places / (len(self) * self.seq_length) if len(self) else 1.0

    def save(self, folder: Path) -> None:
        """Write the arrays into ``folder``, which exists when all of it does: it appears complete, or not at all."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=f".{folder.name}.", ignore_cleanup_errors=True
        ) as name:
            temporary = Path(name, "index")
            temporary.mkdir()
            for array in _ARRAYS:
                np.save(temporary / f"{array}.npy", getattr(self, array))
            (temporary / "index.json").write_text(
                json.dumps({"seq_length": self.seq_length, "num_left_out": self.num_left_out})
            )
            try:
                os.rename(temporary, folder)
            except OSError:
                if not folder.is_dir():  # else another process has just done the same work
                    raise

    @classmethod
    def load(cls, folder: Path) -> PackingIndex:
        """What ``save`` has written, mapped into memory: pages are read when they are used."""
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
        return cls(**arrays, **json.loads((folder / "index.json").read_text()), folder=str(folder))

    def __reduce__(self) -> tuple[object, ...]:
        # A worker process maps the same file, rather than being sent what it holds.
        if self.folder is not None:
            return PackingIndex.load, (Path(self.folder),)
        return PackingIndex, tuple(getattr(self, each.name) for each in dataclasses.fields(self))


_ARRAYS = ("row_starts", "documents", "begins", "sizes")


@final
class Packing:
    """Lays documents into rows; see the module's docstring.

    Raises:
        DataError: ``mode="stream"`` with ``long`` other than ``"split"``: it cuts documents wherever a row ends.
    """

    class Config(ax_config.Config["Packing"]):
        """How to lay documents into rows."""

        mode: Mode = field(default="stream", help="documents end to end, or into rows where they fit")
        long: Long = field(
            default="split", help="what to do with a document that is longer than a row, where it fits whole"
        )
        window: int = field(default=16_384, help="documents that are fitted into rows together")
        segments: bool = field(
            default=False, help='whether batches tell documents apart: arrays "segments" and "positions", for attention'
        )

        def arrays(self) -> tuple[str, ...]:
            """The names of a batch's arrays."""
            return ("tokens", "targets", "segments", "positions") if self.segments else ("tokens", "targets")

    def __init__(self, cfg: Config, /) -> None:
        if cfg.mode == "stream" and cfg.long != "split":
            raise DataError(
                f'packing.long: wanted "split", for mode "stream" cuts documents wherever a row ends, got "{cfg.long}"; '
                'choose the mode "first_fit" or "best_fit"'
            )
        if cfg.window < 1:
            raise DataError(f"packing.window: wanted at least 1 document, got {cfg.window}")
        self.cfg = cfg

    def pack(self, lengths: np.ndarray, *, seq_length: int, seed: int) -> PackingIndex:
        """The rows of documents of ``lengths`` (``[D]``, in tokens). A pure function of its arguments and the config.

        Raises:
            DataError: A document is longer than a row and ``long="error"``.
        """
        if seq_length < 1:
            raise DataError(f"seq_length: wanted at least 1, got {seq_length}")
        sizes = np.asarray(lengths, np.int64) + 1
        if self.cfg.mode == "stream":
            return _stream(sizes, seq_length)
        order = permute(np.arange(len(sizes)), size=max(len(sizes), 1), key=key_of("packing", seed))
        too_long = sizes[order] > seq_length
        if self.cfg.long == "error" and too_long.any():
            worst = int(np.argmax(sizes))
            raise DataError(
                f"{int(too_long.sum())} documents are longer than a row of {seq_length} with their end mark (document {worst} "
                f'has {sizes[worst] - 1} tokens), and packing.long is "error": choose "split" or "leave_out", or raise seq_length'
            )
        if self.cfg.long == "leave_out":
            order = order[~too_long]
        full = sizes[order] // seq_length
        rest = sizes[order] % seq_length
        rows = list(_full_rows(order, full, seq_length))
        fit = _first_fit if self.cfg.mode == "first_fit" else _best_fit
        for start in range(0, len(order), self.cfg.window):
            window = slice(start, start + self.cfg.window)
            some = np.flatnonzero(rest[window]) + start
            longest_first = some[np.argsort(-rest[some], kind="stable")]
            row_of = fit(rest[longest_first].tolist(), seq_length)
            rows.append(_Rows(row_of, order[longest_first], full[longest_first] * seq_length, rest[longest_first]))
        return _index_of(rows, seq_length, int(too_long.sum()) if self.cfg.long == "leave_out" else 0)

    def identity(self, *, seq_length: int, seed: int) -> dict[str, object]:
        """All that the rows depend on besides the documents' lengths."""
        cfg = self.cfg
        fitted = {} if cfg.mode == "stream" else {"long": cfg.long, "window": cfg.window, "packing_seed": seed}
        return {"packing": cfg.mode, "seq_length": seq_length, **fitted}

    def pack_documents(
        self, documents: TokenDocuments, *, seq_length: int, seed: int, cache: Path | None = None
    ) -> PackingIndex:
        """``pack``, but kept in the folder ``cache``, by content, where a second call finds it."""
        if cache is None:
            return self.pack(documents.lengths, seq_length=seq_length, seed=seed)
        what = {"documents": documents.fingerprint, **self.identity(seq_length=seq_length, seed=seed)}
        name = hashlib.blake2b(
            json.dumps(what, sort_keys=True).encode(), digest_size=12, person=b"packing 1"
        ).hexdigest()
        folder = cache / name
        if not folder.is_dir():
            self.pack(documents.lengths, seq_length=seq_length, seed=seed).save(folder)
        return PackingIndex.load(folder)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Spans and the row of each, the rows counted from 0."""

    rows: np.ndarray
    documents: np.ndarray
    begins: np.ndarray
    sizes: np.ndarray


def _stream(sizes: np.ndarray, seq_length: int) -> PackingIndex:
    """A span begins where a document or a row does."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    # Two sequences in order, merged: which is what a stable sort finds out.
    starts = np.sort(np.concatenate([ends - sizes, np.arange(0, total, seq_length)]), kind="stable")
    starts = starts[np.diff(starts, append=total) > 0]
    documents = np.searchsorted(ends, starts, side="right")
    num_rows = -(-total // seq_length)
    return PackingIndex(
        row_starts=np.searchsorted(starts, np.append(np.arange(num_rows) * seq_length, total)),
        documents=documents,
        begins=starts - (ends - sizes)[documents],
        sizes=np.diff(np.append(starts, total)).astype(np.int32),
        seq_length=seq_length,
    )


def _full_rows(documents: np.ndarray, counts: np.ndarray, seq_length: int) -> Iterator[_Rows]:
    """The rows that a document fills alone, ``counts`` of each."""
    total = int(counts.sum())
    if total:
        which = np.repeat(np.arange(len(documents)), counts)
        nth = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        yield _Rows(np.arange(total), documents[which], nth * seq_length, np.full(total, seq_length))


def _first_fit(sizes: Sequence[int], capacity: int) -> np.ndarray:
    """The row of each: the first with room. The rooms stand in a tree of maxima, through which the first is found."""
    leaves = 1 << max(len(sizes) - 1, 0).bit_length()
    room = [capacity] * (2 * leaves)
    rows = []
    for size in sizes:
        node = 1
        while node < leaves:
            node *= 2
            if room[node] < size:
                node += 1
        rows.append(node - leaves)
        room[node] -= size
        while node > 1:
            node //= 2
            left, right = room[2 * node], room[2 * node + 1]
            room[node] = left if left > right else right
    return np.array(rows, np.int64)


def _best_fit(sizes: Sequence[int], capacity: int) -> np.ndarray:
    """The row of each: the one with the least room that is enough. Bit ``r`` of ``rooms`` says whether a row has room ``r``."""
    rows_with: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0
    num_rows = 0
    rows = []
    for size in sizes:
        enough = rooms >> size
        if enough:
            room = size + (enough & -enough).bit_length() - 1
            row = rows_with[room].pop()
            if not rows_with[room]:
                rooms ^= 1 << room
        else:
            room, row = capacity, num_rows
            num_rows += 1
        left = room - size
        if left:
            rows_with[left].append(row)
            rooms |= 1 << left
        rows.append(row)
    return np.array(rows, np.int64)


def _index_of(parts: Sequence[_Rows], seq_length: int, num_left_out: int) -> PackingIndex:
    """The rows of all parts, one part after another."""
    offsets = np.cumsum([0, *(int(part.rows.max(initial=-1)) + 1 for part in parts)])
    rows = np.concatenate([part.rows + offset for part, offset in zip(parts, offsets[:-1], strict=True)] or [_NONE])
    by_row = np.argsort(rows, kind="stable")

    def gathered(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts] or [_NONE])[by_row]

    return PackingIndex(
        row_starts=np.searchsorted(rows[by_row], np.arange(int(offsets[-1]) + 1)),
        documents=gathered("documents"),
        begins=gathered("begins"),
        sizes=gathered("sizes").astype(np.int32),
        seq_length=seq_length,
        num_left_out=num_left_out,
    )


_NONE = np.empty(0, np.int64)
