"""Tokenised documents in memory.

Each document is tokenised once and kept in flat numpy arrays: the tokens of all documents one after another, in the smallest
unsigned type that holds the vocabulary, and per document its end, its bytes, its digest and its origin.
"""

from __future__ import annotations

import array
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from ._document import Document
from ._encoders import checked_ids
from ._holdout import content_digest
from .protocols import Tokenizer


@final
class TokenStore:
    """Documents that are appended one by one: 2 bytes a token for vocabularies up to 65,536, else 4. Fits ``TokenDocuments``."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens = array.array("H" if tokenizer.vocab_size <= 2**16 else "I")
        self._ends = array.array("q")
        self._num_bytes = array.array("q")
        self._digests: list[bytes] = []
        self._origins: list[str] = []

    def append(self, document: Document) -> None:
        """Tokenise ``document`` and keep the tokens."""
        data = document.text.encode("utf-8")
        ids = checked_ids(self._tokenizer.encode(document.text), self._tokenizer, document.origin)
        self._tokens.frombytes(ids.astype(np.dtype(self._tokens.typecode)).tobytes())
        self._ends.append(len(self._tokens))
        self._num_bytes.append(len(data))
        self._digests.append(content_digest(data))
        self._origins.append(document.origin)

    def __len__(self) -> int:
        """The number of documents."""
        return len(self._ends)

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents, without end marks."""
        return len(self._tokens)

    @property
    def num_bytes(self) -> int:
        """UTF-8 bytes of all documents."""
        return sum(self._num_bytes)

    @property
    def digests(self) -> Sequence[bytes]:
        """The content digest of each document."""
        return self._digests

    def documents(self, chosen: np.ndarray | None = None, /) -> MemoryDocuments:
        """The documents where ``chosen`` ([D] bool) is True, in order; all unless given. No more can be appended while they live."""
        which = np.arange(len(self)) if chosen is None else np.flatnonzero(chosen)
        ends = np.frombuffer(self._ends, np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        return MemoryDocuments(
            np.frombuffer(self._tokens, np.dtype(self._tokens.typecode)),
            starts=starts[which],
            ends=ends[which],
            origins=[self._origins[i] for i in which.tolist()],
            num_bytes=int(np.frombuffer(self._num_bytes, np.int64)[which].sum()),
        )


@final
class MemoryDocuments:
    """Documents that are parts of one array of tokens. Fits ``TokenDocuments`` and ``SupportsParts``.

    ``num_bytes`` are the bytes of the text that they stand for.
    """

    def __init__(
        self, tokens: np.ndarray, *, starts: np.ndarray, ends: np.ndarray, origins: Sequence[str], num_bytes: int
    ) -> None:
        self.num_bytes = num_bytes
        self._tokens, self._starts, self._ends, self._origins = tokens, starts, ends, origins

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        """``tokens``, ``[T]`` int32."""
        if not 0 <= index < len(self):
            raise IndexError(f"{len(self)} documents, asked for {index}")
        return {"tokens": self._tokens[self._starts[index] : self._ends[index]].astype(np.int32)}

    def part(self, index: int, begin: int, end: int, /) -> Mapping[str, np.ndarray]:
        """``tokens`` from ``begin`` to ``end``."""
        start = self._starts[index]
        return {"tokens": self._tokens[start + begin : start + end].astype(np.int32)}

    @property
    def lengths(self) -> np.ndarray:
        """The tokens of each, ``[D]`` int64."""
        lengths: np.ndarray = self._ends - self._starts
        return lengths

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of all tokens and of where documents end."""
        digest = hashlib.blake2b(self.lengths.astype("<i8").tobytes(), digest_size=16)
        for start, end in zip(self._starts.tolist(), self._ends.tolist(), strict=True):
            digest.update(self._tokens[start:end].astype("<u4").tobytes())
        return digest.hexdigest()

    def origin(self, index: int, /) -> str:
        """The file, and the record in it, that document ``index`` was read from."""
        return self._origins[index]
