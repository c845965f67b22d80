from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from ax_input import DataError, MemoryDocuments, Packing, Rows
from ax_input.protocols import SupportsParts
from ax_input.testing import check_source, check_token_documents
from hypothesis import given, settings
from hypothesis import strategies as st

EOS = 0


def documents_of(lengths: Sequence[int]) -> MemoryDocuments:
    """Documents whose tokens are 1, 2, 3, …, no two the same."""
    ends = np.cumsum(np.array(lengths, np.int64))
    tokens = np.arange(1, int(ends[-1]) + 1, dtype=np.uint16)
    origins = [f"{i}.txt" for i in range(len(lengths))]
    return MemoryDocuments(tokens, starts=ends - lengths, ends=ends, origins=origins, num_bytes=len(tokens))


class Weighted:
    """Documents in plain Python; of the tokens only those count that 3 divides. Fits ``TokenDocuments``, and no more."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._documents = documents_of(lengths)
        self.lengths = self._documents.lengths
        self.fingerprint = "weighted"

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        tokens = self._documents[index]["tokens"]
        return {"tokens": tokens, "weights": (tokens % 3 == 0).astype(np.float32)}

    def origin(self, index: int, /) -> str:
        return f"somewhere:{index}"


def row_by_row(documents: MemoryDocuments | Weighted, rows: Rows) -> list[dict[str, list[int]]]:
    """What every row should be, in plain Python."""
    expected = []
    for row in range(len(rows)):
        arrays: dict[str, list[int]] = {"tokens": [], "targets": [], "segments": [], "positions": []}
        for segment, span in enumerate(rows.spans(row), 1):
            arrays_T = documents[span.document]
            tokens = arrays_T["tokens"].tolist()
            weights = arrays_T["weights"].tolist() if "weights" in arrays_T else [1.0] * len(tokens)
            weights.append(weights[-1] if weights else 1.0)
            targets = [t if w else -1 for t, w in zip([*tokens, EOS], weights, strict=True)]
            arrays["tokens"] += [EOS, *tokens][span.begin : span.end]
            arrays["targets"] += targets[span.begin : span.end]
            arrays["segments"] += [segment] * (span.end - span.begin)
            arrays["positions"] += range(span.end - span.begin)
        for name, fill in (("tokens", EOS), ("targets", -1), ("segments", 0), ("positions", 0)):
            arrays[name] += [fill] * (rows.seq_length - len(arrays[name]))
        expected.append(arrays)
    return expected


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=20),
    seq_length=st.integers(1, 16),
    mode=st.sampled_from(["stream", "first_fit", "best_fit"]),
    weighted=st.booleans(),
)
def test_rows_are_what_the_index_says(lengths: list[int], seq_length: int, mode: str, weighted: bool) -> None:
    if not sum(lengths):
        lengths = [*lengths, 1]
    documents = Weighted(lengths) if weighted else documents_of(lengths)
    packing = Packing.Config(segments=True).clone(mode=mode).build()
    rows = Rows(documents, packing=packing, seq_length=seq_length, eos_id=EOS)
    batch = rows.gather(np.arange(len(rows)))
    assert [{name: batch[name][i].tolist() for name in batch} for i in range(len(rows))] == row_by_row(documents, rows)
    assert all(values.dtype == np.int32 for values in batch.values())
    if not weighted:
        targets = batch["targets"][batch["targets"] > 0]
        assert sorted(targets.tolist()) == list(range(1, sum(lengths) + 1))
        assert (batch["targets"] == EOS).sum() == len(lengths)


def test_a_stream_is_the_documents_joined_by_end_marks() -> None:
    rows = Rows(documents_of([2, 0, 5]), packing=Packing.Config().build(), seq_length=4, eos_id=EOS)
    batch = rows.gather(np.arange(3))
    assert sorted(batch) == ["targets", "tokens"]
    assert batch["tokens"].tolist() == [[0, 1, 2, 0], [0, 3, 4, 5], [6, 7, 0, 0]]
    assert batch["targets"].tolist() == [[1, 2, 0, 0], [3, 4, 5, 6], [7, 0, -1, -1]]


def test_random_access() -> None:
    packing = Packing.Config(mode="best_fit", segments=True).build()
    rows = Rows(documents_of([5, 6, 7, 1, 2]), packing=packing, seq_length=8, eos_id=EOS)
    check_source(rows)
    batch = rows.gather(np.array([2, 0, 99]))
    for i, row in enumerate([2, 0]):
        for name, values in rows[row].items():
            assert np.array_equal(values, batch[name][i])
    assert (batch["targets"][2] == -1).all()
    assert not batch["segments"][2].any()
    for row in (-1, len(rows)):
        with pytest.raises(IndexError):
            rows[row]


def test_the_identity_is_of_what_the_rows_depend_on() -> None:
    def identity(lengths: Sequence[int], *, seq_length: int = 4, seed: int = 0, **settings: object) -> object:
        packing = Packing.Config().clone(**settings).build()
        return Rows(documents_of(lengths), packing=packing, seq_length=seq_length, eos_id=EOS, seed=seed).identity

    assert identity([3, 4]) == identity([3, 4], seed=1, window=3, segments=True)  # which a stream doesn't depend on
    assert identity([3, 4], mode="best_fit") == identity([3, 4], mode="best_fit", segments=True)
    different = [
        identity([3, 4]),
        identity([4, 3]),
        identity([3, 4], seq_length=5),
        identity([3, 4], mode="best_fit"),
        identity([3, 4], mode="first_fit"),
        identity([3, 4], mode="best_fit", seed=1),
        identity([3, 4], mode="best_fit", window=3),
    ]
    assert all(a != b for i, a in enumerate(different) for b in different[:i])


def test_weighted_documents_are_documents() -> None:
    check_token_documents(Weighted([3, 0, 5]))
    check_token_documents(documents_of([3, 0, 5]))
    assert not isinstance(Weighted([3]), SupportsParts)


def test_damaged_documents_are_named() -> None:
    documents = Weighted([3, 8])
    documents.lengths = np.array([3, 9])
    rows = Rows(documents, packing=Packing.Config().build(), seq_length=16, eos_id=EOS)
    with pytest.raises(DataError, match=r"somewhere:1: document 1 has 9 tokens by its corpus's lengths, but only 8"):
        rows[0]
