import numpy as np
import pytest
from ax_input import (
    BadRecordError,
    ByteTokenizer,
    MemorySource,
    PreferenceEncoder,
    PreferenceRows,
    Record,
    encode_records,
)


def rows(*records: dict[str, object], seq_length: int = 64) -> PreferenceRows:
    encoder = PreferenceEncoder.Config().build(tokenizer=ByteTokenizer())
    return PreferenceRows(encode_records(MemorySource(list(records)), encoder), seq_length=seq_length)


def read(row: np.ndarray) -> str:
    return ByteTokenizer().decode(row[row > 0])


def test_texts() -> None:
    pair = rows({"prompt": "2+2=", "chosen": "4", "rejected": "five"}, seq_length=10)[0]
    assert {name: (array.shape, array.dtype.name) for name, array in pair.items()} == {
        "tokens": ((2, 10), "int32"),
        "targets": ((2, 10), "int32"),
    }
    assert [read(row) for row in pair["tokens"]] == ["2+2=4", "2+2=five"]
    eos = ByteTokenizer().eos_id
    assert pair["targets"].tolist() == [
        [-1, -1, -1, ord("4"), eos, -1, -1, -1, -1, -1],
        [-1, -1, -1, *map(ord, "five"), eos, -1, -1],
    ]
    # A target is the next token wherever it counts.
    counted = pair["targets"][:, :-1] >= 0
    assert np.array_equal(pair["tokens"][:, 1:][counted], pair["targets"][:, :-1][counted])


def test_long_pairs_lose_their_end() -> None:
    pair = rows({"prompt": "2+2=", "chosen": "4", "rejected": "five"}, seq_length=6)[0]
    assert read(pair["tokens"][1]) == "2+2=fi"
    assert pair["targets"][1].tolist() == [-1, -1, -1, *map(ord, "fiv")]


def test_conversations() -> None:
    ask = [{"role": "user", "content": "Hi"}]
    good, bad = ([{"role": "assistant", "content": text}] for text in ("Hello!", "What?"))
    (first, second) = (
        rows({"prompt": ask, "chosen": good, "rejected": bad}, seq_length=99)[0],
        rows({"chosen": ask + good, "rejected": ask + bad}, seq_length=99)[0],
    )
    for name in first:
        assert np.array_equal(first[name], second[name])
    assert [read(row) for row in first["targets"]] == ["Hello!<|im_end|>", "What?<|im_end|>"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"prompt": "a", "chosen": "b"}, "missing field: no field 'rejected'"),
        ({"prompt": "a", "chosen": "b", "rejected": ["c"]}, "wanted two texts or lists of messages, got str and list"),
        ({"chosen": "b", "rejected": "c"}, "got NoneType and str"),
        ({"prompt": "a", "chosen": "", "rejected": "c"}, "'chosen' is empty"),
    ],
)
def test_bad_pairs(record: dict[str, object], message: str) -> None:
    encoder = PreferenceEncoder.Config().build(tokenizer=ByteTokenizer())
    with pytest.raises(BadRecordError, match=message):
        encoder(Record(record, "pairs.jsonl", 3))
