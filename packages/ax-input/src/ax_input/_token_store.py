"""Documents as one long row of tokens, and windows cut from it.

A ``TokenStore`` tokenises each document once and keeps flat numpy arrays: the tokens of all documents one after another, in the
smallest unsigned type that holds the vocabulary, and per document its end, its bytes and its digest. ``windows``
joins a choice of documents into a stream, with an end mark before the first and after each,

    eos  d o c u m e n t  eos  a n o t h e r  eos

and cuts it into windows: inputs ``stream[i*T : (i+1)*T]`` and targets one further. So every token of every document is a target
exactly once, with all that precedes it in its window as context; the last window is filled up with targets of -1.
"""

from __future__ import annotations

import array
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from ._document import Document
from ._errors import DataError
from ._holdout import content_digest
from .protocols import Tokenizer

IGNORED_TARGET = -1
"""The target of a position that doesn't count."""


@final
class TokenStore:
    """Tokenised documents, in memory: 2 bytes a token for vocabularies up to 65,536, else 4."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens = array.array("H" if tokenizer.vocab_size <= 2**16 else "I")
        self._ends = array.array("q")
        self._num_bytes = array.array("q")
        self._digests: list[bytes] = []

    def append(self, document: Document) -> None:
        """Tokenise ``document`` and keep the tokens."""
        data = document.text.encode("utf-8")
        ids = np.asarray(self._tokenizer.encode(document.text))
        vocab_size = self._tokenizer.vocab_size
        if ids.ndim != 1 or (ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size):
            raise DataError(
                f"{document.origin}: wanted ids of shape [T] in [0, {vocab_size}) from {type(self._tokenizer).__name__}, got "
                f"shape {list(ids.shape)}, {ids.min()} to {ids.max()}"
            )
        self._tokens.frombytes(ids.astype(np.dtype(self._tokens.typecode)).tobytes())
        self._ends.append(len(self._tokens))
        self._num_bytes.append(len(data))
        self._digests.append(content_digest(data))

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

    def windows(self, documents: np.ndarray, *, seq_length: int) -> Windows:
        """The windows of the documents where ``documents`` ([D] bool) is True, in order."""
        ends = np.frombuffer(self._ends, np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        chosen = np.flatnonzero(documents)
        # Positions in the new stream: each document is followed by one mark, and the first comes after one.
        lengths = (ends - starts)[chosen]
        stops = 1 + np.cumsum(lengths + 1)
        tokens = np.frombuffer(self._tokens, np.dtype(self._tokens.typecode))
        stream = np.full(int(stops[-1]) if chosen.size else 1, self._tokenizer.eos_id, tokens.dtype)
        for start, length, stop in zip(starts[chosen].tolist(), lengths.tolist(), stops.tolist(), strict=True):
            stream[stop - 1 - length : stop - 1] = tokens[start : start + length]
        num_bytes = int(np.frombuffer(self._num_bytes, np.int64)[chosen].sum())
        return Windows(stream, seq_length=seq_length, num_bytes=num_bytes)


@final
class Windows:
    """A stream of tokens as windows of ``seq_length`` inputs and targets, with random access.

    ``stream`` begins and ends with an end mark; ``num_bytes`` are the bytes of the text that it stands for.
    """

    def __init__(self, stream: np.ndarray, *, seq_length: int, num_bytes: int) -> None:
        if seq_length < 1:
            raise DataError(f"seq_length: wanted at least 1, got {seq_length}")
        if len(stream) < 2:
            raise DataError("no documents to make windows of")
        self.seq_length = seq_length
        self.num_bytes = num_bytes
        self.num_targets = len(stream) - 1
        self._stream = stream

    def __len__(self) -> int:
        return -(-self.num_targets // self.seq_length)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        """Window ``index``: ``tokens`` and ``targets``, ``[T]`` int32."""
        if not 0 <= index < len(self):
            raise IndexError(f"{len(self)} windows, asked for {index}")
        return {name: values[0] for name, values in self.gather(np.array([index])).items()}

    def gather(self, indices: np.ndarray, /) -> Mapping[str, np.ndarray]:
        """Several windows: ``tokens`` and ``targets``, ``[B, T]`` int32. Targets past the last are -1, so whole windows can be."""
        positions_BT = indices[:, None] * self.seq_length + np.arange(self.seq_length)
        tokens_BT = self._stream[np.minimum(positions_BT, self.num_targets)].astype(np.int32)
        targets_BT = self._stream[np.minimum(positions_BT + 1, self.num_targets)].astype(np.int32)
        targets_BT[positions_BT >= self.num_targets] = IGNORED_TARGET
        return {"tokens": tokens_BT, "targets": targets_BT}

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per target; end marks are targets of no bytes.

        A mean loss of ``l`` nats per target is ``l / log(2) / bytes_per_token`` bits per byte.
        """
        return self.num_bytes / self.num_targets

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the stream: windows of the same length with the same fingerprint are the same windows."""
        stored = self._stream.astype(self._stream.dtype.newbyteorder("<"), copy=False)
        return hashlib.blake2b(stored.data, digest_size=16).hexdigest()
