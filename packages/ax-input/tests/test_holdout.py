import random

import numpy as np
import pytest
from ax_input import DataError, Document, holdout_mask
from ax_input._holdout import content_digest, cut_in_two
from hypothesis import given, settings
from hypothesis import strategies as st

FRACTIONS = st.floats(0.001, 0.999)
TEXTS = st.lists(st.binary(max_size=3), min_size=2, max_size=40).filter(lambda texts: len(set(texts)) > 1)


def held_out(texts: list[bytes], fraction: float, seed: int) -> set[bytes]:
    mask = holdout_mask([content_digest(text) for text in texts], fraction=fraction, seed=seed)
    out = {text for text, chosen in zip(texts, mask, strict=True) if chosen}
    kept = {text for text, chosen in zip(texts, mask, strict=True) if not chosen}
    assert not out & kept
    assert out
    assert kept
    return out


@settings(deadline=None)
@given(texts=TEXTS, fraction=FRACTIONS, seed=st.integers(-5, 2**40), shuffler=st.randoms(use_true_random=False))
def test_disjoint_and_independent_of_order(
    texts: list[bytes], fraction: float, seed: int, shuffler: random.Random
) -> None:
    before = held_out(texts, fraction, seed)
    shuffler.shuffle(texts)
    assert held_out(texts, fraction, seed) == before


def test_independent_of_what_else_there_is() -> None:
    texts = [f"{i}".encode() for i in range(1000)]
    assert held_out(texts, 0.2, 1) & set(texts[:500]) == held_out(texts[:500], 0.2, 1)


def test_fraction_and_seed() -> None:
    texts = [f"{i}".encode() for i in range(4000)]
    by_seed = [held_out(texts, 0.1, seed) for seed in (0, 1)]
    assert all(320 < len(out) < 480 for out in by_seed)
    assert len(by_seed[0] & by_seed[1]) < 80
    assert by_seed[0] < held_out(texts, 0.3, 0)


def test_zero_holds_out_nothing() -> None:
    assert not holdout_mask([content_digest(b"x")], fraction=0.0, seed=0).any()


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_fraction_out_of_range(fraction: float) -> None:
    with pytest.raises(DataError, match="holdout_fraction: wanted"):
        holdout_mask([content_digest(b"x")] * 2, fraction=fraction, seed=0)


def test_too_few_contents() -> None:
    with pytest.raises(DataError, match="3 documents with 1 different contents"):
        holdout_mask([content_digest(b"x")] * 3, fraction=0.5, seed=0)


@settings(deadline=None)
@given(text=st.text(min_size=2), fraction=FRACTIONS)
def test_cut_in_two(text: str, fraction: float) -> None:
    first, second = cut_in_two(Document(text, "a.txt", 3), fraction)
    assert first.text + second.text == text
    assert first.text
    assert second.text
    assert first.origin == second.origin == "a.txt:3"


def test_cut_is_at_a_line() -> None:
    text = "".join(f"line {i}\n" for i in range(100))
    first, second = cut_in_two(Document(text, "a"), 0.1)
    assert first.text.endswith("\n")
    assert second.text.startswith("line")
    assert np.isclose(len(second.text) / len(text), 0.1, atol=0.01)


def test_cut_needs_two_characters() -> None:
    with pytest.raises(DataError, match="a: 1 characters are too few"):
        cut_in_two(Document("x", "a"), 0.1)
