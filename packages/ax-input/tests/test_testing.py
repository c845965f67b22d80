"""The kits accept strangers that fit, and refuse what doesn't, naming the fault."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from ax_input import ByteTokenizer
from ax_input.testing import check_batch_stream, check_source, check_tokenizer


class Counting:
    """A stranger's stream in plain Python; ``fault`` names what it does wrong."""

    def __init__(self, shard_index: int, shard_count: int, fault: str = "") -> None:
        self._step = 0
        self._rows = slice(shard_index * 4 // shard_count, (shard_index + 1) * 4 // shard_count)
        self._offset = np.random.default_rng().integers(100) if fault == "random" else 0
        self._fault = fault

    def __next__(self) -> Mapping[str, np.ndarray]:
        rows = np.arange(4) + 4 * self._step + self._offset
        self._step += 1
        return {"tokens": rows if self._fault == "whole" else rows[self._rows]}

    def get_state(self) -> bytes:
        return str(self._step + (self._fault == "ahead")).encode()

    def set_state(self, state: bytes, /) -> None:
        if self._fault != "deaf":
            self._step = int(state) - (self._fault == "behind")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("", ""),
        ("random", "a second stream's batch 0"),
        ("ahead", "reads back as"),
        ("behind", "reads back as"),
        ("deaf", "reads back as"),
        ("whole", "2 shards joined: batch 3"),
    ],
)
def test_check_batch_stream(fault: str, message: str) -> None:
    def make_stream(*, shard_index: int, shard_count: int) -> Counting:
        return Counting(shard_index, shard_count, fault)

    if not fault:
        check_batch_stream(make_stream)
        return
    with pytest.raises(AssertionError, match=message):
        check_batch_stream(make_stream)


def test_check_source_accepts_lists_and_arrays() -> None:
    check_source(["a", "b"])
    check_source([])
    check_source(np.arange(1000).reshape(100, 10))
    check_source([{"a": np.arange(3), "b": [1, (2,)]}] * 3)


def test_check_source_refuses_a_moving_one() -> None:
    class Moving:
        calls = 0

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int, /) -> int:
            self.calls += 1
            return self.calls

    with pytest.raises(AssertionError, match="record 0 was 1, and 6 when asked for again"):
        check_source(Moving())


class Broken:
    """A byte tokenizer with one thing changed."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self.vocab_size = 100 if fault == "outside" else 257
        self.eos_id = {"no eos": 300, "outside": 0}.get(fault, 256)

    def encode(self, text: str, /) -> np.ndarray:
        ids = ByteTokenizer().encode(text)
        if self._fault == "marks":
            ids = np.append(ids, np.int32(self.eos_id))
        if self._fault == "outside":
            return ids[ids > 0]
        return ids.astype(np.int64) if self._fault == "dtype" else ids

    def decode(self, ids: Sequence[int] | np.ndarray, /) -> str:
        array = np.asarray(ids, np.int32)
        text = ByteTokenizer().decode(array[array > 0] if self._fault == "outside" else array)
        return text.lower() if self._fault == "lower" else text


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no eos", "eos_id 300 is outside"),
        ("outside", "outside of the vocabulary of 100"),
        ("marks", "encode adds no marks"),
        ("dtype", "int64, wanted int32"),
        ("lower", "came back as"),
    ],
)
def test_check_tokenizer(fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_tokenizer(Broken(fault))


def test_check_tokenizer_lossy() -> None:
    check_tokenizer(Broken("lower"), lossless=False)
