"""The kits accept strangers that fit, and refuse what doesn't, naming the fault."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from ax_input import ByteTokenizer, ChatEncoder, PreferenceEncoder, Record, TextEncoder
from ax_input.testing import (
    check_batch_stream,
    check_corpus,
    check_encoder,
    check_source,
    check_token_documents,
    check_tokenizer,
)


class Counting:
    """A stranger's stream in plain Python; ``fault`` names what it does wrong."""

    def __init__(self, shard_index: int, shard_count: int, fault: str = "") -> None:
        self._step = 0
        self._rows = slice(shard_index * 4 // shard_count, (shard_index + 1) * 4 // shard_count)
        self._offset = np.random.default_rng().integers(2**40) if fault == "random" else 0
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


class Telling(Counting):
    """The same, telling where batches come from, and how often it went through them."""

    def origins(self, state: bytes, /) -> Sequence[str]:
        if self._fault == "goes there":
            self.set_state(state)
        if self._fault == "silent" and int(state) == 2:
            return []
        row = 4 * int(state) + (self._rows.start if self._fault == "own" else 0)
        return [f"row {row}"]

    def epochs(self, state: bytes, /) -> float:
        epochs = int(state) / 3
        return {"early": epochs + 1, "within": epochs % 1}.get(self._fault, epochs)


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


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("", ""),
        ("silent", "no origins of batch 2"),
        ("own", "a shard tells other origins than the whole"),
        ("goes there", "after origins and epochs were asked for: batch 0"),
        ("early", "1.0 epochs before the first batch"),
        ("within", "epochs go back"),
    ],
)
def test_check_batch_stream_that_tells(fault: str, message: str) -> None:
    def make_stream(*, shard_index: int, shard_count: int) -> Telling:
        return Telling(shard_index, shard_count, fault)

    if not fault:
        check_batch_stream(make_stream, shard_counts=(1, 2, 4))
        return
    with pytest.raises(AssertionError, match=message):
        check_batch_stream(make_stream)


class Odd:
    """Documents with one thing wrong."""

    def __init__(self, fault: str = "") -> None:
        self._fault = fault
        lengths = np.array([3, 0, 6])
        self.lengths = lengths.astype(np.int32) if fault == "narrow" else lengths[:2] if fault == "few" else lengths
        self.fingerprint = "odd"

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        length = (3, 0, 7 if self._fault == "longer" else 6)[index]
        tokens = np.arange(length, dtype=np.int64 if self._fault == "wide" else np.int32)
        if self._fault == "read":
            self.fingerprint += "!"
        if self._fault == "weights":
            return {"tokens": tokens, "weights": np.ones(length)}
        return {"tokens": tokens, "more": tokens} if self._fault == "unlike" and index else {"tokens": tokens}

    def part(self, index: int, begin: int, end: int, /) -> Mapping[str, np.ndarray]:
        return {name: array[begin : end - (self._fault == "part")] for name, array in self[index].items()}

    def origin(self, index: int, /) -> str:
        return "" if self._fault == "nowhere" else f"odd:{index}"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("", ""),
        ("narrow", "lengths are int32, wanted int64"),
        ("few", r"lengths have shape \(2,\), there are 3 documents"),
        ("nowhere", "document 0 has no origin"),
        ("longer", r"odd:2: 'tokens' has shape \(7,\), its length is 6"),
        ("wide", "odd:0: tokens are int64, wanted int32"),
        ("weights", "odd:0: weights are float64, wanted float32"),
        ("unlike", "odd:1: the first document is"),
        ("part", "odd:0: tokens 0 to 3 are not that part of the whole"),
        ("read", "the fingerprint changed by reading"),
    ],
)
def test_check_token_documents(fault: str, message: str) -> None:
    if not fault:
        check_token_documents(Odd())
        return
    with pytest.raises(AssertionError, match=message):
        check_token_documents(Odd(fault))


class Halves:
    """A corpus of odd documents."""

    def __init__(self, fault: str = "") -> None:
        self.train = Odd()
        other = Odd()
        self.validation = None if fault == "none" else self.train if fault == "same" else other
        other.fingerprint = "other"
        self.bytes_per_token = 0.0 if fault == "no bytes" else 1.0
        self.report = "" if fault == "silent" else "three documents"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("", ""),
        ("none", ""),
        ("same", "the same is held out and trained on"),
        ("no bytes", "0.0 bytes per token"),
        ("silent", "the report says nothing"),
    ],
)
def test_check_corpus(fault: str, message: str) -> None:
    if not message:
        check_corpus(Halves(fault))
        return
    with pytest.raises(AssertionError, match=message):
        check_corpus(Halves(fault))


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


class Backwards:
    """A stranger's encoder: the letters of a text, the last first; ``fault`` names what it does wrong."""

    fields = ("text",)

    def __init__(self, fault: str = "") -> None:
        self._fault = fault
        self._calls = 0
        self.identity = "" if fault == "nameless" else "backwards"
        self.dtypes = {"letters" if fault == "others" else "tokens": np.dtype("u1" if fault == "narrow" else "<u2")}

    def __call__(self, record: Record, /) -> tuple[Mapping[str, np.ndarray], int]:
        text = record.text("text")[::-1]
        self._calls += self._fault == "moody"
        tokens = np.array([ord(letter) + self._calls for letter in text], np.int32)
        if self._fault == "silent":
            tokens = tokens[:0]
        if self._fault == "long":
            tokens = tokens.astype(np.int64)
        more = {"weights": tokens} if self._fault == "more" else {}
        return {"tokens": tokens[None] if self._fault == "deep" else tokens, **more}, len(text)


RECORDS = [Record({"text": "grün"}, "colours"), Record({"text": "東京"}, "cities")]


def test_check_encoder_accepts_strangers_and_ours() -> None:
    check_encoder(Backwards(), RECORDS)
    check_encoder(TextEncoder.Config().build(tokenizer=ByteTokenizer()), RECORDS)
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    check_encoder(ChatEncoder.Config().build(tokenizer=ByteTokenizer()), [Record({"messages": messages}, "chats")])
    pair = Record({"prompt": "1+1=", "chosen": "2", "rejected": "3"}, "pairs")
    check_encoder(PreferenceEncoder.Config().build(tokenizer=ByteTokenizer()), [pair])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nameless", "the identity is empty"),
        ("others", "no tokens among the arrays"),
        ("narrow", "cities: 'tokens' doesn't survive as uint8"),
        ("moody", "another document when encoded again"),
        ("silent", "no tokens in any record"),
        ("long", "tokens are int64, wanted int32"),
        ("more", r"\['tokens', 'weights'\], told \['tokens'\]"),
        ("deep", r"wanted \[T\] each"),
    ],
)
def test_check_encoder(fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_encoder(Backwards(fault), RECORDS)
