from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from ax_input import DataError, Mixing, Phase
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = ("code", "prose", "web")


def phase(begin: int = 0, **weights: float) -> Phase:
    return Phase.Config(begin=begin, weights=weights).build()


def mixing(*phases: Phase, batch_size: int = 4, block_rows: int = 10, seed: int = 0) -> Mixing:
    return Mixing(NAMES, phases, batch_size=batch_size, block_rows=block_rows, seed=seed)


def names(mix: Mixing, batch: int) -> list[str]:
    return [mix.sources[i] for i in mix.rows(batch)[0]]


@st.composite
def mixtures(draw: st.DrawFn) -> Sequence[Phase]:
    begins = [0, *draw(st.lists(st.integers(1, 12), unique=True, max_size=2).map(sorted))]
    weights = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 9).map(float), min_size=1)
    return [phase(begin, **draw(weights)) for begin in begins]


@settings(max_examples=30, deadline=None)
@given(phases=mixtures(), batch_size=st.integers(1, 9), block_rows=st.integers(30, 70), seed=st.integers(0, 2**40))
def test_rows_are_counted_from_any_batch(phases: Sequence[Phase], batch_size: int, block_rows: int, seed: int) -> None:
    """What a batch is said to have before it is what all the batches before it have."""
    mix = mixing(*phases, batch_size=batch_size, block_rows=block_rows, seed=seed)
    counts = np.zeros(len(NAMES), np.int64)
    for batch in range(30):
        assert mix.counts(batch).tolist() == counts.tolist()
        sources, nth = mix.rows(batch)
        assert len(sources) == batch_size
        for source, number in zip(sources.tolist(), nth.tolist(), strict=True):
            assert number == counts[source]
            counts[source] += 1


def test_every_block_holds_the_exact_shares() -> None:
    mix = mixing(phase(code=3, prose=1, web=1), batch_size=5, block_rows=20)
    order = [name for batch in range(400) for name in names(mix, batch)]
    blocks = [order[i : i + 20] for i in range(0, len(order), 20)]
    assert all(Counter(block) == {"code": 12, "prose": 4, "web": 4} for block in blocks)
    assert len(set(map(tuple, blocks))) > 90  # each in an order of its own


def test_shares_are_rounded_by_largest_remainders() -> None:
    mix = mixing(phase(code=0.5, prose=0.3, web=0.2), block_rows=7)  # 3.5, 2.1, 1.4
    assert Counter(n for batch in range(7) for n in names(mix, batch)) == {"code": 16, "prose": 8, "web": 4}


def test_a_phase_changes_nothing_before_it() -> None:
    first = phase(code=1, prose=1)
    before = mixing(first)
    after = mixing(first, phase(7, web=1))
    for batch in range(7):
        assert np.array_equal(before.rows(batch), after.rows(batch))
    assert names(after, 7) == ["web"] * 4
    assert after.rows(9)[1].tolist() == [8, 9, 10, 11]
    assert after.counts(7).tolist() == before.counts(7).tolist()


def test_another_source_that_gives_nothing_changes_nothing() -> None:
    few = Mixing(("code", "web"), [phase(code=2, web=1)], batch_size=4, block_rows=9, seed=0)
    more = Mixing(("web", "prose", "code"), [phase(code=2, web=1)], batch_size=4, block_rows=9, seed=0)
    for batch in range(20):
        assert names(few, batch) == names(more, batch)


def test_far_away_is_as_near() -> None:
    mix = mixing(phase(code=3, prose=1), phase(10**11, web=1, code=1), block_rows=100, batch_size=1000)
    assert mix.counts(10**11).tolist() == [75 * 10**12, 25 * 10**12, 0]
    assert mix.counts(10**12).tolist() == [75 * 10**12 + 45 * 10**13, 25 * 10**12, 45 * 10**13]
    assert len(names(mix, 10**12)) == 1000


def test_identity_ends_where_it_is_asked() -> None:
    mix = mixing(phase(code=1), phase(5, prose=3, web=1))
    assert mix.identity(0) == mix.identity(5) == {"0": {"block_rows": 10, "code": 10}}
    assert mix.identity(6) == {**mix.identity(5), "5": {"block_rows": 10, "prose": 8, "web": 2}}
    assert mix.used(5) == ["code"]
    assert mix.used(6) == ["code", "prose", "web"]


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([], r"wanted the first to begin at batch 0 and each other later, got begins \[\]"),
        ([phase(1, code=1)], r"got begins \[1\]"),
        ([phase(0, code=1), phase(0, web=1)], r"got begins \[0, 0\]"),
        ([phase(0, code=1), phase(9, web=1), phase(5, web=1)], r"got begins \[0, 9, 5\]"),
        ([phase(0, cod=1)], "from batch 0: no source is called cod; there are: code, prose, web"),
        ([phase(0, code=-1, web=2)], "wanted weights of at least 0"),
        ([phase(0, code=0)], "wanted weights of at least 0, one of them more"),
        (
            [phase(0, code=1000, web=1)],
            "web has 0.001 of the weight, which is no row in a block of 10: raise block_rows",
        ),
    ],
)
def test_wrong_phases(phases: Sequence[Phase], message: str) -> None:
    with pytest.raises(DataError, match=message):
        mixing(*phases)


def test_wrong_block() -> None:
    with pytest.raises(DataError, match="block_rows: wanted at least 1, got 0"):
        mixing(phase(code=1), block_rows=0)
