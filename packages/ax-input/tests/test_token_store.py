from collections.abc import Sequence

import numpy as np
import pytest
from ax_input import ByteTokenizer, DataError, Document, TokenStore
from ax_input.testing import check_token_documents


def store_of(texts: Sequence[str]) -> TokenStore:
    store = TokenStore(ByteTokenizer())
    for index, text in enumerate(texts):
        store.append(Document(text, f"{index}.txt"))
    return store


def test_documents_are_what_was_appended() -> None:
    texts = ["one", "", "zwölf", "x" * 300]
    store = store_of(texts)
    for chosen in ([True] * 4, [False, True, True, False]):
        documents = store.documents(np.array(chosen))
        kept = [(i, text) for i, (text, choice) in enumerate(zip(texts, chosen, strict=True)) if choice]
        check_token_documents(documents)
        assert [bytes(documents[i]["tokens"].astype(np.uint8)).decode() for i in range(len(documents))] == [
            text for _, text in kept
        ]
        assert [documents.origin(i) for i in range(len(documents))] == [f"{i}.txt" for i, _ in kept]
        assert documents.lengths.tolist() == [len(text.encode()) for _, text in kept]
        assert documents.num_bytes == documents.lengths.sum()
    assert len(store.documents()) == 4
    for index in (-1, 4):
        with pytest.raises(IndexError, match="4 documents"):
            store.documents()[index]


def test_sizes() -> None:
    store = store_of(["ab", "", "ü"])
    assert (len(store), store.num_tokens, store.num_bytes) == (3, 4, 4)


def test_fingerprint_tells_contents_and_boundaries_apart() -> None:
    def fingerprint(*texts: str) -> str:
        return store_of(texts).documents().fingerprint

    assert fingerprint("ab", "c") == fingerprint("ab", "c")
    assert len({fingerprint("ab", "c"), fingerprint("a", "bc"), fingerprint("abc"), fingerprint("c", "ab")}) == 4


class WideTokenizer:
    """A token a character, for vocabularies beyond 16 bits; ``shift`` makes it give wrong ids."""

    vocab_size = 0x110001
    eos_id = 0x110000

    def __init__(self, shift: int = 0) -> None:
        self._shift = shift

    def encode(self, text: str, /) -> np.ndarray:
        return np.array([ord(c) + self._shift for c in text], np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray, /) -> str:
        return "".join(chr(i) for i in ids if i < self.eos_id)


def test_large_vocabulary() -> None:
    store = TokenStore(WideTokenizer())
    store.append(Document("🙂é", "a.txt"))
    assert store.documents()[0]["tokens"].tolist() == [ord("🙂"), ord("é")]
    assert store.documents().num_bytes == 6


def test_ids_outside_of_the_vocabulary_are_refused() -> None:
    for shift in (-100, 0x110001):
        with pytest.raises(DataError, match=r"a\.txt: wanted ids of shape \[T\] in \[0, 1114113\) from WideTokenizer"):
            TokenStore(WideTokenizer(shift)).append(Document("A", "a.txt"))
