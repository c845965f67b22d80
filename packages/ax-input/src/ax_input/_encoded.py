"""Documents in memory, encoded from records as they are: for what is too small to be worth a prepared corpus."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from ._errors import BadRecordError, BadRecordLog
from ._record import Record
from .protocols import Encoder, Source


@final
class EncodedDocuments:
    """Documents' arrays and origins, in memory; fits ``TokenDocuments``."""

    def __init__(self, documents: Sequence[Mapping[str, np.ndarray]], *, origins: Sequence[str]) -> None:
        self._documents = documents
        self._origins = origins
        self.lengths = np.array([len(document["tokens"]) for document in documents], np.int64)
        """The tokens of each document, ``[D]``."""

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        return self._documents[index]

    def origin(self, index: int, /) -> str:
        """Where document ``index`` came from."""
        return self._origins[index]

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of all arrays."""
        digest = hashlib.blake2b(self.lengths.astype("<i8").tobytes(), digest_size=16)
        for document in self._documents:
            for name, array in sorted(document.items()):
                digest.update(f"{name}:{array.dtype.str}:".encode())
                digest.update(array.tobytes())
        return digest.hexdigest()


def encode_records(
    records: Source[Record], encoder: Encoder, *, bad_records: BadRecordLog | None = None
) -> EncodedDocuments:
    """The documents of ``records``. Bad ones are raised, or go to ``bad_records``."""
    log = bad_records if bad_records is not None else BadRecordLog("error")
    documents, origins = [], []
    for index in range(len(records)):
        try:
            record = records[index]
            arrays, _ = encoder(record)
        except BadRecordError as error:
            log.add(error)
        else:
            documents.append(arrays)
            origins.append(record.origin)
    return EncodedDocuments(documents, origins=origins)
