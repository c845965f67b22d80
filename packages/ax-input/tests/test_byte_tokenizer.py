import numpy as np
import pytest
from ax_input import ByteTokenizer
from ax_input.protocols import Tokenizer
from ax_input.testing import check_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

TOKENIZER: Tokenizer = ByteTokenizer()


def test_kit() -> None:
    check_tokenizer(TOKENIZER)


@settings(deadline=None)
@given(st.text())
def test_round_trip(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert len(ids) == len(text.encode())
    assert TOKENIZER.decode(ids) == text


@settings(deadline=None)
@given(st.lists(st.integers(-10, 300)))
def test_any_ids_decode(ids: list[int]) -> None:
    kept = bytes(i for i in ids if 0 <= i < 256)
    assert TOKENIZER.decode(ids) == TOKENIZER.decode(np.array(ids, np.int32)) == kept.decode("utf-8", "replace")


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        TOKENIZER.encode("\ud800")
