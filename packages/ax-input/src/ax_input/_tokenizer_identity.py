"""Whether two tokenizers are the same, told by what they do: a corpus that was prepared with another is of no use to a model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from .protocols import SupportsFingerprint, Tokenizer

_PROBE = (
    "The quick brown fox jumps over the lazy dog, 1234567890 times; it's \u201cfun\u201d.\n\n"
    "def f(x):\n\treturn x ** 2  # two  spaces\n"
    "Größe, naïve café, 東京, привет, שלום, हिन्दी, 🙂🏽 <|endoftext|>\r\n"
)


def tokenizer_identity(tokenizer: Tokenizer) -> Mapping[str, str | int]:
    """Vocabulary, end mark, a digest of the ids of a text with a bit of everything, and the tokenizer's own fingerprint."""
    ids = np.asarray(tokenizer.encode(_PROBE), np.int64)
    return {
        "vocab_size": tokenizer.vocab_size,
        "eos_id": tokenizer.eos_id,
        "probe": hashlib.blake2b(ids.astype("<i8").tobytes(), digest_size=16).hexdigest(),
        "fingerprint": tokenizer.fingerprint if isinstance(tokenizer, SupportsFingerprint) else "",
    }
