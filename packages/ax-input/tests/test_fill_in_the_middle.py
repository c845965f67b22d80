import numpy as np
import pytest
from ax_input import DataError, EncodedDocuments, FillInTheMiddle, RearrangedDocuments
from ax_input.testing import check_token_documents
from hypothesis import given, settings
from hypothesis import strategies as st

PRE, MID, SUF = 1001, 1002, 1003


def documents(lengths: list[int]) -> EncodedDocuments:
    arrays = [
        {"tokens": np.arange(length, dtype=np.int32), "weights": np.arange(length, dtype=np.float32)}
        for length in lengths
    ]
    return EncodedDocuments(arrays, origins=[f"doc:{i}" for i in range(len(lengths))])


def rearranged(
    base: EncodedDocuments, *, rate: float = 0.5, spm_rate: float = 0.5, seed: int = 0
) -> RearrangedDocuments:
    config = FillInTheMiddle.Config(
        prefix_id=PRE, middle_id=MID, suffix_id=SUF, rate=rate, spm_rate=spm_rate, seed=seed
    )
    return config.build()(base)


def undone(tokens: list[int]) -> tuple[list[int], str]:
    """The document as it was, and its form. With an empty prefix both forms are one."""
    if PRE not in tokens:
        return tokens, "left"
    assert tokens[0] == PRE
    suffix, middle = tokens.index(SUF), tokens.index(MID)
    document = tokens[1:suffix] + tokens[middle + 1 :] + tokens[suffix + 1 : middle]
    return document, "SPM" if suffix == 1 else "PSM"


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=30),
    rate=st.floats(0, 1),
    spm_rate=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_nothing_is_lost(lengths: list[int], rate: float, spm_rate: float, seed: int) -> None:
    base = documents(lengths)
    arranged = rearranged(base, rate=rate, spm_rate=spm_rate, seed=seed)
    check_token_documents(arranged)
    for i, length in enumerate(lengths):
        tokens, weights = arranged[i]["tokens"], arranged[i]["weights"]
        assert undone(tokens.tolist())[0] == list(range(length))
        marks = tokens > 1000
        assert (weights[marks] == 1).all()
        assert np.array_equal(weights[~marks], tokens[~marks])


def test_forms_and_rates() -> None:
    base = documents([999] * 2000)
    for rate, spm_rate in [(0.5, 0.5), (0.9, 0.0), (1.0, 1.0), (0.0, 0.5)]:
        arranged = rearranged(base, rate=rate, spm_rate=spm_rate)
        forms = [undone(arranged[i]["tokens"].tolist())[1] for i in range(len(arranged))]
        wanted = {"left": 1 - rate, "PSM": rate * (1 - spm_rate), "SPM": rate * spm_rate}
        for form, share in wanted.items():
            # Four standard deviations, and two thousandths of the prefixes are empty.
            assert abs(forms.count(form) / 2000 - share) < 4 * np.sqrt(share * (1 - share) / 2000) + 0.005


def test_cuts_are_uniform() -> None:
    arranged = rearranged(documents([9] * 4000), rate=1.0, spm_rate=0.0)
    prefixes = [arranged[i]["tokens"].tolist().index(SUF) - 1 for i in range(4000)]
    # The smaller of two uniform draws of ten: P(k) = (2 (9 - k) + 1) / 100.
    expected = 4000 * (2 * (9 - np.arange(10)) + 1) / 100
    chi_squared = ((np.bincount(prefixes, minlength=10) - expected) ** 2 / expected).sum()
    assert chi_squared < 27.9  # the 0.999 quantile for 9 degrees of freedom


def test_it_is_a_function_of_seed_and_place() -> None:
    base = documents([30] * 50)
    first, again, other = rearranged(base), rearranged(base), rearranged(base, seed=1)
    backwards = [again[i]["tokens"].tolist() for i in reversed(range(50))][::-1]
    assert [first[i]["tokens"].tolist() for i in range(50)] == backwards
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert [other[i]["tokens"].tolist() for i in range(50)] != backwards


def test_wrong_settings() -> None:
    with pytest.raises(DataError, match="rate: wanted 0 to 1, got 2"):
        rearranged(documents([1]), rate=2)
    with pytest.raises(DataError, match="three different marks"):
        FillInTheMiddle.Config(prefix_id=PRE, middle_id=PRE, suffix_id=SUF).build()
