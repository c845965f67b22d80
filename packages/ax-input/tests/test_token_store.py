import math
from collections.abc import Sequence

import numpy as np
import pytest
from ax_input import ByteTokenizer, DataError, Document, TokenStore, Windows
from ax_input.testing import check_source
from hypothesis import given, settings
from hypothesis import strategies as st

EOS = ByteTokenizer.eos_id


def store_of(texts: Sequence[str]) -> TokenStore:
    store = TokenStore(ByteTokenizer())
    for index, text in enumerate(texts):
        store.append(Document(text, f"{index}.txt"))
    return store


@settings(deadline=None)
@given(
    chosen=st.lists(st.tuples(st.text(max_size=12), st.booleans()), min_size=1).filter(lambda c: any(x[1] for x in c)),
    seq_length=st.integers(1, 20),
)
def test_windows_cover_the_chosen_documents_exactly(chosen: list[tuple[str, bool]], seq_length: int) -> None:
    texts, mask = zip(*chosen, strict=True)
    windows = store_of(texts).windows(np.array(mask), seq_length=seq_length)
    kept = [text for text, choice in chosen if choice]
    stream = [EOS]
    for text in kept:
        stream += [*text.encode(), EOS]

    batch = windows.gather(np.arange(len(windows)))
    counts = batch["targets"] >= 0
    assert batch["targets"][counts].tolist() == stream[1:]
    assert batch["tokens"][counts].tolist() == stream[:-1]
    assert counts.sum() == windows.num_targets == len(stream) - 1
    assert counts[:-1].all()
    assert len(windows) == math.ceil(windows.num_targets / seq_length)
    assert (batch["tokens"][~counts] == EOS).all()
    assert windows.bytes_per_token == sum(len(text.encode()) for text in kept) / windows.num_targets


def test_random_access() -> None:
    windows = store_of(["one", "zwölf"]).windows(np.array([True, True]), seq_length=4)
    check_source(windows)
    batch = windows.gather(np.array([2, 0, 3]))
    for row, index in enumerate([2, 0]):
        for name in ("tokens", "targets"):
            assert windows[index][name].dtype == np.int32
            assert windows[index][name].shape == (4,)
            assert np.array_equal(windows[index][name], batch[name][row])
    assert (batch["targets"][2] == -1).all()
    for index in (-1, len(windows)):
        with pytest.raises(IndexError):
            windows[index]


def test_sizes() -> None:
    store = store_of(["ab", "", "ü"])
    assert (len(store), store.num_tokens, store.num_bytes) == (3, 4, 4)


def test_fingerprint_tells_contents_and_boundaries_apart() -> None:
    def fingerprint(*texts: str) -> str:
        return store_of(texts).windows(np.ones(len(texts), np.bool_), seq_length=4).fingerprint

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


def test_large_vocabulary_and_bytes_per_token() -> None:
    store = TokenStore(WideTokenizer())
    store.append(Document("🙂é", "a.txt"))
    windows = store.windows(np.array([True]), seq_length=8)
    assert windows[0]["targets"].tolist() == [ord("🙂"), ord("é"), WideTokenizer.eos_id, *[-1] * 5]
    assert windows.bytes_per_token == 6 / 3


def test_ids_outside_of_the_vocabulary_are_refused() -> None:
    for shift in (-100, 0x110001):
        with pytest.raises(DataError, match=r"a\.txt: wanted ids of shape \[T\] in \[0, 1114113\) from WideTokenizer"):
            TokenStore(WideTokenizer(shift)).append(Document("A", "a.txt"))


def test_nothing_to_cut() -> None:
    with pytest.raises(DataError, match="no documents"):
        store_of(["a"]).windows(np.array([False]), seq_length=4)
    with pytest.raises(DataError, match="seq_length: wanted at least 1, got 0"):
        Windows(np.zeros(5, np.uint16), seq_length=0, num_bytes=4)
