"""The seams that ax-input owns: where records come from, how text becomes numbers, and what is dealt out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from ._record import Record

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


@runtime_checkable
class SupportsFingerprint(Protocol):
    """A tokenizer that can tell whether it is another's equal, whatever text it is tried on."""

    @property
    def fingerprint(self) -> str:
        """Changes when the ids of any text do."""
        ...


@runtime_checkable
class SupportsMarks(Protocol):
    """A tokenizer with special tokens that have a name in text, such as ``<|im_end|>``."""

    def encode_marked(self, text: str, /) -> np.ndarray:
        """As ``encode``, but names of special tokens become those tokens: for what a template writes, not for a document."""
        ...


class Encoder(Protocol):
    """Makes a document of a record: what a corpus is prepared with."""

    @property
    def identity(self) -> str:
        """Changes when what is made of any record does, the tokenizer aside."""
        ...

    @property
    def fields(self) -> Sequence[str]:
        """The fields of a record that are looked at, the indispensable first: what the text of a file without fields becomes."""
        ...

    @property
    def dtypes(self) -> Mapping[str, np.dtype]:
        """The arrays that every document gets, ``tokens`` among them, and how they are kept on disk."""
        ...

    def __call__(self, record: Record, /) -> tuple[Mapping[str, np.ndarray], int]:
        """The arrays, all ``[T]``, and the bytes of text that they stand for. Raises BadRecordError for a bad record."""
        ...


class TokenDocuments(Protocol):
    """Tokenised documents with random access: in memory, on disk, or a transform of others. What the ledger deals out."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        """The arrays of a document, all ``[T]``, without an end mark.

        ``tokens`` are int32; ``weights``, where there are any, float32: whether each token counts as a target.
        """
        ...

    @property
    def lengths(self) -> np.ndarray:
        """The tokens of each document, ``[D]`` int64: what the order is made of, without a document being read."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when any array of any document does, or their order."""
        ...

    def origin(self, index: int, /) -> str:
        """Where document ``index`` came from, for people: ``file`` or ``file:record``."""
        ...


@runtime_checkable
class SupportsParts(Protocol):
    """``TokenDocuments`` of which a part can be read for less than the whole costs: long ones are read row by row."""

    def part(self, index: int, begin: int, end: int, /) -> Mapping[str, np.ndarray]:
        """The arrays of document ``index`` from ``begin`` to ``end``, which are in [0, its length]."""
        ...


class Corpus(Protocol):
    """Tokenised documents in two parts: what a mixture asks of a source, whose config is built with ``tokenizer`` and ``on_progress``."""

    @property
    def train(self) -> TokenDocuments:
        """What to train on."""
        ...

    @property
    def validation(self) -> TokenDocuments | None:
        """What is held out; None when nothing is."""
        ...

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per token or end mark of what is held out (of what to train on when nothing is), for bits per byte."""
        ...

    @property
    def report(self) -> object:
        """What was read and what was left out; printed for the user."""
        ...
