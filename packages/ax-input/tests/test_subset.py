import numpy as np
import pytest
from ax_config import partial_for
from ax_input import Concatenated, DataError, EncodedDocuments, Subset, by_length, subsample, where
from ax_input.protocols import TokenDocuments
from ax_input.testing import check_token_documents
from hypothesis import given, settings
from hypothesis import strategies as st


def documents(*lengths: int, first: int = 0) -> EncodedDocuments:
    """Documents of these lengths, each of one number."""
    arrays = [{"tokens": np.full(length, first + i, np.int32)} for i, length in enumerate(lengths)]
    return EncodedDocuments(arrays, origins=[f"doc:{first + i}" for i in range(len(lengths))])


def numbers(chosen: TokenDocuments) -> list[int]:
    return [int(chosen.origin(i).removeprefix("doc:")) for i in range(len(chosen))]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.data())
def test_subsets_and_concatenations(lengths: list[int], data: st.DataObject) -> None:
    base = documents(*lengths)
    indices = data.draw(st.lists(st.integers(0, len(lengths) - 1)))
    chosen = Subset(base, np.array(indices, np.int64))
    joined = Concatenated(chosen, base, Subset(chosen, np.arange(len(chosen))[::-1]))
    check_token_documents(chosen)
    check_token_documents(joined)
    assert numbers(joined) == [*indices, *range(len(lengths)), *indices[::-1]]
    assert joined.lengths.tolist() == [lengths[i] for i in numbers(joined)]
    assert [int(joined[i]["tokens"][0]) for i in range(len(joined))] == numbers(joined)


def test_by_length() -> None:
    base = documents(3, 0, 7, 4, 9)
    assert numbers(by_length(base)) == [0, 2, 3, 4]
    assert numbers(by_length(base, minimum=4, maximum=7)) == [2, 3]
    assert numbers(by_length(base, maximum=0, minimum=0)) == [1]
    assert numbers(partial_for(by_length, maximum=4).build()(base)) == [0, 3]


def test_where() -> None:
    assert numbers(where(documents(1, 1, 1, 1), keep=lambda document: bool(document["tokens"][0] % 2))) == [1, 3]


def test_subsample() -> None:
    base = documents(*[1] * 1000)
    parts = {fraction: numbers(subsample(base, fraction=fraction, seed=3)) for fraction in (0.0, 0.1, 0.25, 1.0)}
    assert [len(part) for part in parts.values()] == [0, 100, 250, 1000]
    assert set(parts[0.1]) < set(parts[0.25])
    assert parts[0.25] == sorted(parts[0.25])
    assert parts[0.1] != numbers(subsample(base, fraction=0.1, seed=4))
    # As spread as chance has it: of 250, 62.5 ± 4 · 6.5 in each quarter.
    assert np.abs(np.histogram(parts[0.25], 4, (0, 1000))[0] - 62.5).max() < 26
    with pytest.raises(DataError, match=r"wanted 0 to 1, got 1\.5"):
        subsample(base, fraction=1.5)


def test_fingerprints_tell_documents_and_choices_apart() -> None:
    base, other = documents(1, 2, 3), documents(1, 2, 4)
    found = [
        corpus.fingerprint
        for corpus in (
            base,
            other,
            Subset(base, np.array([0, 1])),
            Subset(base, np.array([1, 0])),
            Subset(other, np.array([0, 1])),
            Concatenated(base, other),
            Concatenated(other, base),
        )
    ]
    assert len(set(found)) == len(found)
    assert Subset(documents(1, 2, 3), np.array([1, 0])).fingerprint == found[3]


def test_outside() -> None:
    chosen = Subset(documents(1, 2), np.array([1]))
    for corpus in (chosen, Concatenated(chosen)):
        for index in (-1, 1):
            with pytest.raises(IndexError):
                corpus[index]
    with pytest.raises(DataError, match="got none"):
        Concatenated()
