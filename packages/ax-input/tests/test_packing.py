import os
import pickle
import time
from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from ax_input import (
    ByteTokenizer,
    DataError,
    Document,
    MemoryDocuments,
    Packing,
    PackingIndex,
    TokenStore,
    standard_library_paths,
)
from hypothesis import given, settings
from hypothesis import strategies as st

MODES: list[Literal["stream", "first_fit", "best_fit"]] = ["stream", "first_fit", "best_fit"]


def pack(lengths: list[int], *, seq_length: int = 8, seed: int = 0, **settings: object) -> PackingIndex:
    return Packing.Config().clone(**settings).build().pack(np.array(lengths), seq_length=seq_length, seed=seed)


def rows(index: PackingIndex) -> list[list[tuple[int, int, int]]]:
    """The spans of each row, as (document, begin, size)."""
    spans = list(zip(index.documents.tolist(), index.begins.tolist(), index.sizes.tolist(), strict=True))
    return [spans[start:end] for start, end in zip(index.row_starts, index.row_starts[1:], strict=False)]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=40),
    seq_length=st.integers(1, 24),
    mode=st.sampled_from(MODES),
    window=st.integers(1, 50),
    seed=st.integers(0, 2**40),
)
def test_every_place_is_in_exactly_one_row(
    lengths: list[int], seq_length: int, mode: str, window: int, seed: int
) -> None:
    index = pack(lengths, seq_length=seq_length, mode=mode, window=window, seed=seed)
    places: Counter[tuple[int, int]] = Counter()
    for row in rows(index):
        assert 0 < sum(size for _, _, size in row) <= seq_length
        for document, begin, size in row:
            assert size > 0
            places.update((document, place) for place in range(begin, begin + size))
    assert places == Counter((d, place) for d, length in enumerate(lengths) for place in range(length + 1))
    assert index.num_places == sum(lengths) + len(lengths)
    assert index.num_left_out == 0
    whole = [d for d, length in enumerate(lengths) if length + 1 <= seq_length]
    if mode != "stream":
        assert all((index.documents == d).sum() == 1 for d in whole)


def test_stream_is_documents_end_to_end() -> None:
    assert rows(pack([2, 0, 9, 3], seq_length=4)) == [
        [(0, 0, 3), (1, 0, 1)],
        [(2, 0, 4)],
        [(2, 4, 4)],
        [(2, 8, 2), (3, 0, 2)],
        [(3, 2, 2)],
    ]
    assert pack([2, 0, 9, 3], seq_length=4).efficiency == 18 / 20


def test_first_and_best_fit() -> None:
    """Places 12, 10, 9 and 1 into rows of 20: when the 1 comes, the first row has room for 8 and the second for 1."""
    first, best = (
        sorted(sorted(size for _, _, size in row) for row in rows(pack([11, 9, 8, 0], seq_length=20, mode=mode)))
        for mode in ("first_fit", "best_fit")
    )
    assert first == [[1, 12], [9, 10]]
    assert best == [[1, 9, 10], [12]]


def test_long_documents() -> None:
    lengths = [3, 20, 5, 8]
    split = pack(lengths, seq_length=8, mode="best_fit")
    assert {(1, 0, 8), (1, 8, 8)} <= {row[0] for row in rows(split) if len(row) == 1}
    left_out = pack(lengths, seq_length=8, mode="best_fit", long="leave_out")
    assert sorted(set(left_out.documents.tolist())) == [0, 2]
    assert left_out.num_left_out == 2
    with pytest.raises(DataError, match=r"2 documents are longer than a row of 8.*document 1 has 20 tokens.*leave_out"):
        pack(lengths, seq_length=8, mode="first_fit", long="error")
    assert len(pack(lengths, seq_length=21, mode="first_fit", long="error")) == 2
    assert len(pack([20], seq_length=8, mode="first_fit", long="leave_out")) == 0


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_pack(mode: str) -> None:
    index = pack([], mode=mode)
    assert (len(index), index.num_places, index.efficiency) == (0, 0, 1.0)


def test_wrong_settings() -> None:
    with pytest.raises(DataError, match=r'packing\.long: wanted "split".*got "error"'):
        pack([1], mode="stream", long="error")
    with pytest.raises(DataError, match=r"packing\.window: wanted at least 1 document, got 0"):
        pack([1], window=0)
    with pytest.raises(DataError, match="seq_length: wanted at least 1, got 0"):
        pack([1], seq_length=0)


def test_the_order_within_windows_is_seeded() -> None:
    lengths = list(range(100))
    assert rows(pack(lengths, mode="first_fit", window=10, seed=1)) == rows(
        pack(lengths, mode="first_fit", window=10, seed=1)
    )
    assert rows(pack(lengths, mode="first_fit", window=10, seed=1)) != rows(
        pack(lengths, mode="first_fit", window=10, seed=2)
    )


@pytest.mark.parametrize("mode", ["first_fit", "best_fit"])
def test_real_text_fills_rows(mode: str) -> None:
    """The standard library's source, by bytes, and by words, of which there are few enough for many documents a row."""
    texts = [path.read_bytes() for path in standard_library_paths()]
    for lengths in ([len(text) for text in texts], [len(text.split()) for text in texts]):
        index = pack(lengths, seq_length=2048, mode=mode)
        assert index.efficiency > 0.99
        assert index.num_places == sum(lengths) + len(lengths)


def test_a_million_documents_take_seconds() -> None:
    lengths = np.random.default_rng(0).lognormal(6.0, 1.0, 1_000_000).astype(np.int64)
    start = time.process_time()
    index = Packing.Config(mode="best_fit").build().pack(lengths, seq_length=2048, seed=0)
    assert time.process_time() - start < 20  # about 0.6 s on a quiet machine
    assert index.efficiency > 0.999


def some_documents() -> MemoryDocuments:
    store = TokenStore(ByteTokenizer())
    for i in range(40):
        store.append(Document("x" * i, f"{i}.txt"))
    return store.documents()


def test_an_index_is_kept_by_content(tmp_path: Path) -> None:
    packing = Packing.Config(mode="best_fit").build()
    documents = some_documents()
    fresh = packing.pack_documents(documents, seq_length=16, seed=0)
    kept = packing.pack_documents(documents, seq_length=16, seed=0, cache=tmp_path)
    assert rows(kept) == rows(fresh)
    (folder,) = tmp_path.iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = packing.pack_documents(documents, seq_length=16, seed=0, cache=tmp_path)
    assert rows(again) == rows(fresh)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert isinstance(again.documents, np.memmap)
    for other in (
        packing.pack_documents(documents, seq_length=17, seed=0, cache=tmp_path),
        packing.pack_documents(documents, seq_length=16, seed=1, cache=tmp_path),
        Packing.Config(mode="first_fit", window=4)
        .build()
        .pack_documents(documents, seq_length=16, seed=0, cache=tmp_path),
    ):
        assert rows(other) != rows(fresh)
    assert len(os.listdir(tmp_path)) == 4


def test_an_index_on_a_disk_is_sent_as_its_place(tmp_path: Path) -> None:
    index = pack([100] * 1000, seq_length=64)
    assert rows(pickle.loads(pickle.dumps(index))) == rows(index)
    index.save(tmp_path / "index")
    index.save(tmp_path / "index")  # by another process, say: it changes nothing
    sent = pickle.dumps(PackingIndex.load(tmp_path / "index"))
    assert len(sent) < 500
    assert rows(pickle.loads(sent)) == rows(index)
