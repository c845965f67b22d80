"""A corpus that ``prepare_corpus`` made: tokenised documents on disk, with random access.

The folder holds

    ax-corpus.json              what it is: tokenizer, encoder, files, counts, bad records, fingerprint
    shard-00000.arrayrecord …   a record a document, uncompressed: its arrays one after another, little-endian
    lengths.npy                 tokens of each document, [D] int64
    places.npy                  where in its shard the bytes of each document begin, [D] int64; -1 for one that only a reader finds
    num_bytes.npy               bytes of the text that each stands for, [D] int64
    digests.npy                 a digest of each document's content, [D, 16] uint8
    sources.npy, records.npy    where each came from: the file's place in the manifest, [D] int32; the record in it, [D] int64, from 1,
                                or 0 for the whole file

Index and shards are mapped into memory, and of a document that part is read that is asked for: a corpus of any size, and a document of
any length, cost no memory. What is read so isn't compared with the checksums in the shards; ``verify`` does that.
"""

from __future__ import annotations

import bisect
import itertools
import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from ._array_record import ArrayRecordFile
from ._errors import BadRecordError, DataError, Reason, Report
from ._holdout import content_digest
from ._riegeli import NOWHERE, mapped, raw
from ._tokenizer_identity import tokenizer_identity
from .protocols import Tokenizer

FORMAT = 1
MANIFEST = "ax-corpus.json"
INDEX: Mapping[str, tuple[np.dtype, tuple[int, ...]]] = {
    "places": (np.dtype("<i8"), ()),
    "lengths": (np.dtype("<i8"), ()),
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
        self._maps: dict[int, mmap.mmap] = {}
        self._readers: dict[int, ArrayRecordFile] = {}
        self._dtypes = {name: np.dtype(dtype) for name, dtype in self.manifest["arrays"].items()}
        self._lengths = self._index["lengths"]
        self._places = self._index["places"]
        self._ends = list(itertools.accumulate(shard["documents"] for shard in self.manifest["shards"]))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        """The arrays of document ``index``, ``[T]``: ``tokens`` int32, others as they were encoded."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.folder}: {len(self)} documents, asked for {index}")
        return self.part(index, 0, int(self.lengths[index]))

    def part(self, index: int, begin: int, end: int, /) -> Mapping[str, np.ndarray]:
        """The arrays of a document from ``begin`` to ``end``; nothing else is read."""
        shard = bisect.bisect_right(self._ends, index)
        place = int(self._places[index])
        data = self._record(shard, index) if place == NOWHERE else self._maps.get(shard) or self._map(shard)
        length = int(self._lengths[index])
        arrays: dict[str, np.ndarray] = {}
        start = 0
        for name, dtype in self._dtypes.items():
            first, last = start + begin * dtype.itemsize, start + end * dtype.itemsize
            found = data[first:last] if isinstance(data, bytes) else raw(data, place, first, last)
            arrays[name] = np.frombuffer(found, dtype).astype(np.int32 if name == "tokens" else dtype)
            start += length * dtype.itemsize
        return arrays

    def verify(self) -> None:
        """Read everything, and compare it with what was prepared. Raises BadRecordError for the first document that is damaged."""
        for index in range(len(self)):
            shard = bisect.bisect_right(self._ends, index)
            record = self._record(shard, index)
            arrays = self.part(index, 0, int(self._lengths[index]))
            mapped_record = b"".join(arrays[name].astype(dtype).tobytes() for name, dtype in self._dtypes.items())
            if not content_digest(record) == content_digest(mapped_record) == self.digests[index].tobytes():
                detail = "not what was prepared: prepare the corpus anew"
                raise BadRecordError(
                    str(self._shard_path(shard)), self._number(shard, index) + 1, Reason.CORRUPT, detail
                )

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

    def _map(self, shard: int) -> mmap.mmap:
        self._maps[shard] = mapped(self._shard_path(shard))
        return self._maps[shard]

    def _record(self, shard: int, index: int) -> bytes:
        """All bytes of a document, by the format's own reader."""
        if shard not in self._readers:
            self._readers[shard] = ArrayRecordFile(self._shard_path(shard))
        return self._readers[shard][self._number(shard, index)]

    def _number(self, shard: int, index: int) -> int:
        """The record of its shard that a document is."""
        return index - (self._ends[shard - 1] if shard else 0)

    def _shard_path(self, shard: int) -> Path:
        return self.folder / str(self.manifest["shards"][shard]["file"])


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
