"""A corpus that ``prepare_corpus`` made: tokenised documents on disk, with random access.

The folder holds

    ax-corpus.json              what it is: tokenizer, encoder, files, counts, bad records, fingerprint
    shard-00000.arrayrecord …   the documents, in pieces of up to 16,384 tokens: a piece's arrays one after another, little-endian
    lengths.npy                 tokens of each document, [D] int64
    pieces.npy                  the record of its shard that each document begins with, [D] int64
    num_bytes.npy               bytes of the text that each stands for, [D] int64
    digests.npy                 a digest of each document's content, [D, 16] uint8
    sources.npy, records.npy    where each came from: the file's place in the manifest, [D] int32; the record in it, [D] int64, from 1,
                                or 0 for the whole file

The arrays are mapped into memory, and reading a part of a document reads the pieces that it lies in: a corpus of any size, and a
document of any length, cost no memory.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from ._array_record import ArrayRecordFile
from ._errors import DataError, Report
from ._tokenizer_identity import tokenizer_identity
from .protocols import Tokenizer

FORMAT = 1
PIECE = 2**14
"""Tokens of a piece, the last of a document aside."""
MANIFEST = "ax-corpus.json"
INDEX: Mapping[str, tuple[np.dtype, tuple[int, ...]]] = {
    "lengths": (np.dtype("<i8"), ()),
    "pieces": (np.dtype("<i8"), ()),
    "num_bytes": (np.dtype("<i8"), ()),
    "digests": (np.dtype("u1"), (16,)),
    "sources": (np.dtype("<i4"), ()),
    "records": (np.dtype("<i8"), ()),
}
"""The arrays of the index: dtype, and shape of a document's entry."""


@final
class PreparedCorpus:
    """The documents in a folder that ``prepare_corpus`` made; fits ``TokenDocuments``.

    Raises DataError when there is no such corpus, or one that isn't complete.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        """All that is known of the corpus, as in the file."""
        self.fingerprint: str = self.manifest["fingerprint"]
        """A digest of all arrays of all documents in order; of them alone, so not of the number of processes or shards."""
        self._index: dict[str, np.ndarray] = {
            name: np.load(self.folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in INDEX
        }
        self._files: dict[int, ArrayRecordFile] = {}
        self._dtypes = {name: np.dtype(dtype) for name, dtype in self.manifest["arrays"].items()}
        self._itemsize = sum(dtype.itemsize for dtype in self._dtypes.values())
        self._pieces = self._index["pieces"]
        self._ends = list(itertools.accumulate(shard["documents"] for shard in self.manifest["shards"]))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        """The arrays of document ``index``, ``[T]``: ``tokens`` int32, others as they were encoded."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.folder}: {len(self)} documents, asked for {index}")
        return self.part(index, 0, int(self.lengths[index]))

    def part(self, index: int, begin: int, end: int, /) -> Mapping[str, np.ndarray]:
        """The arrays of a document from ``begin`` to ``end``; only the pieces that hold them are read."""
        shard = bisect.bisect_right(self._ends, index)
        file = self._files.get(shard) or self._open(shard)
        start = int(self._pieces[index])
        first = begin // PIECE
        found = [
            self._arrays(file[start + piece], max(begin - piece * PIECE, 0), end - piece * PIECE)
            for piece in range(first, -(-end // PIECE))
        ]
        if len(found) == 1:
            return found[0]
        nothing = {"tokens": np.empty(0, np.int32)}
        return {
            name: np.concatenate([nothing.get(name, np.empty(0, dtype)), *(arrays[name] for arrays in found)])
            for name, dtype in self._dtypes.items()
        }

    def _arrays(self, record: bytes, begin: int, end: int) -> dict[str, np.ndarray]:
        """The arrays in a piece, from ``begin`` to ``end`` or its end."""
        length = len(record) // self._itemsize
        arrays: dict[str, np.ndarray] = {}
        start = 0
        for name, dtype in self._dtypes.items():
            arrays[name] = np.frombuffer(record, dtype, length, start)[begin:end]
            start += length * dtype.itemsize
        arrays["tokens"] = arrays["tokens"].astype(np.int32)
        return arrays

    @property
    def lengths(self) -> np.ndarray:
        """The tokens of each document, ``[D]`` int64."""
        return self._index["lengths"]

    @property
    def num_bytes(self) -> np.ndarray:
        """The bytes of text that each document stands for, ``[D]`` int64."""
        return self._index["num_bytes"]

    @property
    def digests(self) -> np.ndarray:
        """A digest of each document's content, ``[D, 16]`` uint8."""
        return self._index["digests"]

    def origin(self, index: int, /) -> str:
        """``file`` or ``file:record``."""
        source = self.manifest["sources"][int(self._index["sources"][index])]["name"]
        record = int(self._index["records"][index])
        return f"{source}:{record}" if record else str(source)

    @property
    def report(self) -> Report:
        """What was read, and what was left out."""
        counts = self.manifest["counts"]
        return Report(
            num_documents=counts["documents"],
            num_bytes=counts["bytes"],
            num_tokens=counts["tokens"],
            bad_records=self.manifest["bad_records"],
            examples=tuple(self.manifest["bad_examples"]),
        )

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise DataError unless ``tokenizer`` does what the one that the corpus was prepared with did."""
        wanted, got = self.manifest["tokenizer"], tokenizer_identity(tokenizer)
        if got != wanted:
            raise DataError(f"{self.folder}: prepared with another tokenizer ({differences(wanted, got)})")

    def __reduce__(self) -> tuple[type[PreparedCorpus], tuple[Path]]:
        return type(self), (self.folder,)  # what is mapped into memory doesn't travel

    def _open(self, shard: int) -> ArrayRecordFile:
        self._files[shard] = ArrayRecordFile(self.folder / self.manifest["shards"][shard]["file"])
        return self._files[shard]


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a corpus. Raises DataError when there is none that can be read."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{folder}: no prepared corpus (there is no {MANIFEST}); make one, or finish it, with ax data prepare"
        ) from None
    if manifest.get("format") != FORMAT:
        raise DataError(f"{folder}: a corpus in format {manifest.get('format')!r}, this version reads {FORMAT}")
    return manifest


def differences(wanted: Mapping[str, object], got: Mapping[str, object]) -> str:
    """What differs between two mappings, for people."""
    names = sorted(wanted.keys() | got.keys())
    return "; ".join(f"{n}: {wanted.get(n)!r}, now {got.get(n)!r}" for n in names if wanted.get(n) != got.get(n))
