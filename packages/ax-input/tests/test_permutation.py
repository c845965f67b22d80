from collections import Counter

import numpy as np
import pytest
from ax_input._permutation import key_of, permute
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_it_is_a_bijection(size: int, key: int) -> None:
    assert np.array_equal(np.sort(permute(np.arange(size), size=size, key=key)), np.arange(size))


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 2**50), key=st.integers(0, 2**64 - 1), data=st.data())
def test_any_place_is_computed_alone(size: int, key: int, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=6))
    together = permute(np.array(places), size=size, key=key)
    assert together.dtype == np.int64
    assert ((together >= 0) & (together < size)).all()
    assert together.tolist() == [int(permute(np.array([place]), size=size, key=key)[0]) for place in places]
    assert len(set(together.tolist())) == len(set(places))


def test_shape_is_kept() -> None:
    assert permute(np.arange(6).reshape(2, 3), size=6, key=1).shape == (2, 3)
    assert permute(np.empty(0, np.int64), size=6, key=1).shape == (0,)


@pytest.mark.parametrize("size", [3, 5, 8, 64])
def test_keys_give_even_orders(size: int) -> None:
    """Every number comes to every place about as often, and so does every pair to the first two places."""
    num_keys = 3000
    orders = np.array([permute(np.arange(size), size=size, key=key_of("test", i)) for i in range(num_keys)])
    for i in {0, size - 1}:
        counts = np.bincount(orders[:, i], minlength=size)
        assert chi_squared_per_degree(counts) < (2 if size > 8 else 5)
    pairs = Counter(zip(orders[:, 0].tolist(), orders[:, 1].tolist(), strict=True))
    assert chi_squared_per_degree(np.array([*pairs.values(), *[0] * (size * (size - 1) - len(pairs))])) < 2.5


def chi_squared_per_degree(counts: np.ndarray) -> float:
    """Pearson's statistic against equal chances, which is about 1 where chances are equal."""
    expected = counts.mean()
    return float(((counts - expected) ** 2 / expected).sum() / (len(counts) - 1))


def test_keys_are_of_what_they_are_made_of() -> None:
    keys = [key_of("a", 1), key_of("a", "1"), key_of("a", 2), key_of("a"), key_of(1, "a"), key_of("a", 1, 0)]
    assert len(set(keys)) == len(keys)
    assert key_of("a", 1) == key_of("a", 1)


def test_it_stays_what_it_was() -> None:
    """The order of every run in the world is made by this: what it gives may never change."""
    assert permute(np.arange(10), size=10, key=0).tolist() == [5, 3, 6, 2, 0, 8, 4, 9, 1, 7]
    assert permute(np.arange(3), size=10**12, key=7).tolist() == [858993714285, 678507282363, 727582640715]
    assert key_of("a", 1) == 15300605340802033645
