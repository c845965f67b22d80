"""Which documents are held out: a property of a document's content alone.

A document is held out when a keyed hash of its content falls into the first ``fraction`` of the range of hashes. So the choice
depends neither on the order of files nor on what else there is, and a text that occurs twice is on one side both times.
Should this leave a side empty, the document with the smallest hash is held out, or the one with the largest kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ._document import Document
from ._errors import DataError

_RANGE = 2**64


def content_digest(data: bytes) -> bytes:
    """Sixteen bytes that stand for ``data``."""
    return hashlib.blake2b(data, digest_size=16).digest()


def check_fraction(fraction: float) -> None:
    """Raise DataError unless ``fraction`` is in [0, 1)."""
    if not 0.0 <= fraction < 1.0:
        raise DataError(f"holdout_fraction: wanted at least 0 and less than 1, got {fraction}")


def holdout_mask(digests: Sequence[bytes], *, fraction: float, seed: int) -> np.ndarray:
    """``[D]`` bool: True for the documents to hold out, by their ``content_digest``.

    Raises DataError unless both sides get a document (none is held out for ``fraction`` 0).
    """
    check_fraction(fraction)
    if fraction == 0.0:
        return np.zeros(len(digests), np.bool_)
    key = seed.to_bytes(16, "little", signed=True)
    ranks = [hashlib.blake2b(digest, digest_size=8, key=key, person=b"holdout").digest() for digest in digests]
    distinct = sorted(set(ranks))
    if len(distinct) < 2:
        raise DataError(
            f"can't hold out a part of {len(digests)} documents with {len(distinct)} different contents: "
            "give more documents, or set holdout_fraction=0"
        )
    limit = int(fraction * _RANGE)
    last_held_out = max((rank for rank in distinct if int.from_bytes(rank, "big") < limit), default=distinct[0])
    last_held_out = min(last_held_out, distinct[-2])
    return np.array([rank <= last_held_out for rank in ranks], np.bool_)


def cut_in_two(document: Document, fraction: float) -> tuple[Document, Document]:
    """A document's beginning, and its last ``fraction`` (by characters, from a line's start where there is one).

    For a corpus that is a single document, where there is nothing to choose between.
    """
    text = document.text
    at = min(max(round(len(text) * (1.0 - fraction)), 1), len(text) - 1)
    at = text.rfind("\n", 0, at) + 1 or at
    if not 0 < at < len(text):
        raise DataError(f"{document.origin}: {len(text)} characters are too few to hold out a part")
    return Document(text[:at], document.path, document.record), Document(text[at:], document.path, document.record)
