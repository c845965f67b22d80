import hashlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pytest
from ax_input import BatchStream, DataError, EvaluationBatches, Ledger, MemoryDocuments, Packing, Rows
from ax_input.testing import check_batch_stream
from hypothesis import given, settings
from hypothesis import strategies as st


def make_rows(num_places: int, seq_length: int = 2) -> Rows:
    """One document, cut into rows; the places are the tokens 0 (which is the end mark as well), 1, 2, …"""
    tokens = np.arange(1, num_places, dtype=np.uint16)
    documents = MemoryDocuments(
        tokens, starts=np.array([0]), ends=np.array([num_places - 1]), origins=["some.txt"], num_bytes=num_places
    )
    return Rows(documents, packing=Packing.Config().build(), seq_length=seq_length, eos_id=0)


def make_stream(
    count: int,
    *,
    batch_size: int,
    seed: int = 0,
    shuffle: bool = True,
    seq_length: int = 2,
    skip: Sequence[tuple[int, int]] = (),
    shard_index: int = 0,
    shard_count: int = 1,
) -> BatchStream:
    """A stream of ``count`` rows, whose first token tells which one it is."""
    ledger = Ledger(
        {"text": make_rows(count * seq_length, seq_length)},
        batch_size=batch_size,
        seed=seed,
        shuffle=shuffle,
        skip=skip,
    )
    return BatchStream(ledger, shard_index=shard_index, shard_count=shard_count)


def dealt(stream: Iterator[object], num_batches: int, seq_length: int = 2) -> list[int]:
    """The rows that the stream deals out."""
    batches = islice(stream, num_batches)
    return [int(row[0]) // seq_length for batch in batches for row in batch["tokens"]]  # type: ignore[index]


@settings(max_examples=5, deadline=None)
@given(
    count=st.integers(4, 40),
    shards=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 2**32),
    shuffle=st.booleans(),
)
def test_kit(count: int, shards: int, seed: int, shuffle: bool) -> None:
    def make(*, shard_index: int, shard_count: int) -> BatchStream:
        return make_stream(
            count, batch_size=4, seed=seed, shuffle=shuffle, shard_index=shard_index, shard_count=shard_count
        )

    check_batch_stream(make, num_batches=5, shard_counts=(shards,))


@settings(max_examples=8, deadline=None)
@given(
    count=st.integers(3, 50),
    batch_size=st.integers(1, 3),
    seed=st.integers(0, 2**40),
    start=st.integers(0, 40),
    detour=st.integers(0, 5),
)
def test_resume_anywhere(count: int, batch_size: int, seed: int, start: int, detour: int) -> None:
    stream = make_stream(count, batch_size=batch_size, seed=seed)
    dealt(stream, start)
    state = stream.get_state()
    expected = dealt(stream, 7)
    other = make_stream(count, batch_size=batch_size, seed=seed)
    dealt(other, detour)
    other.set_state(state)
    assert other.get_state() == state
    assert dealt(other, 7) == expected
    stream.set_state(state)
    assert dealt(stream, 7) == expected


@settings(max_examples=10, deadline=None)
@given(count=st.integers(2, 60), seed=st.integers(0, 2**40), shuffle=st.booleans())
def test_every_epoch_holds_every_row_once(count: int, seed: int, shuffle: bool) -> None:
    stream = make_stream(count, batch_size=2, seed=seed, shuffle=shuffle)
    order = dealt(stream, count * 2)
    epochs = [order[i : i + count] for i in range(0, len(order), count)]
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
    if not shuffle:
        assert all(epoch == list(range(count)) for epoch in epochs)
    elif count > 20:
        assert len({tuple(epoch) for epoch in epochs}) == 4


def test_neighbouring_seeds_share_no_epoch() -> None:
    orders = [dealt(make_stream(30, batch_size=3, seed=seed), 40) for seed in (0, 1)]
    epochs = [tuple(order[i : i + 30]) for order in orders for i in range(0, 120, 30)]
    assert len(set(epochs)) == 8


def test_the_order_stays_what_it_was() -> None:
    """Runs are resumed by it: a permutation or a ledger that gives another order has to be noticed."""
    order = [7, 8, 5, 0, 1, 3, 6, 9, 2, 4, 1, 8, 0, 3, 4, 6, 2, 7, 9, 5]
    assert dealt(make_stream(10, batch_size=5, seed=0), 4) == order


def test_resume_in_another_process() -> None:
    code = """if True:
        import hashlib, sys
        import numpy as np
        from ax_input import BatchStream, Ledger, MemoryDocuments, Packing, Rows
        tokens = np.arange(1, 200, dtype=np.uint16)
        documents = MemoryDocuments(tokens, starts=np.array([0]), ends=np.array([199]), origins=["some.txt"], num_bytes=1)
        rows = Rows(documents, packing=Packing.Config().build(), seq_length=4, eos_id=0)
        stream = BatchStream(Ledger({"text": rows}, batch_size=4, seed=3))
        stream.set_state(sys.argv[1].encode())
        for _ in range(20):
            batch = next(stream)
            print(hashlib.sha256(batch["tokens"].tobytes() + batch["targets"].tobytes()).hexdigest())
    """
    stream = make_stream(50, batch_size=4, seed=3, seq_length=4)
    dealt(stream, 17)
    state = stream.get_state()
    expected = []
    for _ in range(20):
        batch = next(stream)
        expected.append(hashlib.sha256(batch["tokens"].tobytes() + batch["targets"].tobytes()).hexdigest())
    command = [sys.executable, "-c", code, state.decode()]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == expected


def test_a_state_of_another_order_is_refused() -> None:
    state = make_stream(20, batch_size=2, seed=0).get_state()
    with pytest.raises(DataError, match=r"another stream of batches \(batch_size: was 2, is 4; seed: was 0, is 1\)"):
        make_stream(20, batch_size=4, seed=1).set_state(state)
    with pytest.raises(DataError, match=r"\(sources\.text\.data: was "):
        make_stream(21, batch_size=2, seed=0).set_state(state)
    make_stream(20, batch_size=2, seed=0, shard_index=1, shard_count=2).set_state(state)


@pytest.mark.parametrize("state", [b"", b"\xff", b"7", b"{}", b'{"order": {}}', b'{"order": 1, "next": 2}'])
def test_nonsense_is_no_state(state: bytes) -> None:
    stream = make_stream(4, batch_size=2, seed=0)
    with pytest.raises(DataError, match="not a state of a BatchStream"):
        stream.set_state(state)


def test_state_is_of_what_was_received() -> None:
    stream = make_stream(20, batch_size=2, seed=0)
    states = [stream.get_state()]
    for _ in range(3):
        next(stream)
        states.append(stream.get_state())
    assert [json.loads(state)["next"] for state in states] == [0, 1, 2, 3]


def test_too_little_text() -> None:
    with pytest.raises(
        DataError, match=r"too little text to train on: 6 tokens are 3 rows of 2, less than one batch of 4"
    ):
        make_stream(3, batch_size=4, seed=0)


@pytest.mark.parametrize(
    ("batch_size", "index", "count", "message"),
    [
        (3, 0, 2, r"batch_size: wanted a multiple of shard_count \(2\)"),
        (0, 0, 1, "batch_size: wanted a multiple"),
        (2, 2, 2, "shard_index: wanted 0 to 1"),
        (2, 0, 0, "shard_index: wanted"),
    ],
)
def test_bad_shards(batch_size: int, index: int, count: int, message: str) -> None:
    if batch_size:
        with pytest.raises(DataError, match=message):
            make_stream(8, batch_size=batch_size, shard_index=index, shard_count=count)
    with pytest.raises(DataError, match=message):
        EvaluationBatches(make_rows(16), batch_size=batch_size, shard_index=index, shard_count=count)


def test_close_ends_the_reading() -> None:
    stream = make_stream(8, batch_size=2, seed=0)
    next(stream)
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        next(stream)
    assert threading.active_count() < 20


@settings(deadline=None)
@given(count=st.integers(1, 40), batch_size=st.sampled_from([2, 4, 6]), shards=st.sampled_from([1, 2]))
def test_evaluation_covers_everything_once(count: int, batch_size: int, shards: int) -> None:
    rows = make_rows(count * 3 - 1, seq_length=3)
    parts = [EvaluationBatches(rows, batch_size=batch_size, shard_index=i, shard_count=shards) for i in range(shards)]
    for _ in range(2):
        targets = []
        for batches in zip(*parts, strict=True):
            for batch in batches:
                assert batch["tokens"].shape == batch["targets"].shape == (batch_size // shards, 3)
                targets += batch["targets"].ravel().tolist()
        assert [target for target in targets if target >= 0] == [*range(1, count * 3 - 1), 0]
    assert len(parts[0]) == -(-len(rows) // batch_size)


@settings(deadline=None)
@given(count=st.integers(1, 60), max_batches=st.integers(1, 8))
def test_a_few_evaluation_batches_are_spread_evenly(count: int, max_batches: int) -> None:
    batches = EvaluationBatches(make_rows(count * 2), batch_size=4, max_batches=max_batches)
    assert len(batches) == min(max_batches, -(-count // 4))
    rows = [
        int(t[0]) // 2 for batch in batches for t, u in zip(batch["tokens"], batch["targets"], strict=True) if u[0] >= 0
    ]
    assert rows == sorted(rows)
    assert max(Counter(rows).values()) == 1
    if max_batches * 4 < count:
        gaps = np.diff([*rows, count])
        assert gaps.max() - gaps.min() <= 1


def test_evaluation_batches_have_random_access() -> None:
    batches = EvaluationBatches(make_rows(10), batch_size=2)
    assert np.array_equal(batches[1]["tokens"], list(batches)[1]["tokens"])
    for index in (-1, 3):
        with pytest.raises(IndexError):
            batches[index]
    with pytest.raises(DataError, match="max_batches: wanted at least 1 or None, got 0"):
        EvaluationBatches(make_rows(10), batch_size=2, max_batches=0)
