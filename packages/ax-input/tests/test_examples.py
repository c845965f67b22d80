import json

import numpy as np
import pytest
from ax_input import DataError, ExampleBatches, ExampleStream, Mapped
from ax_input.testing import check_batch_stream, check_source
from hypothesis import given, settings
from hypothesis import strategies as st


def examples(size: int) -> list[dict[str, np.ndarray]]:
    return [{"images": np.full((2, 3), i, np.float32), "targets": np.asarray(i, np.int32)} for i in range(size)]


def numbers(stream: ExampleStream, count: int) -> list[int]:
    return [int(target) for _ in range(count) for target in next(stream)["targets"]]


def test_it_is_a_stream() -> None:
    source = examples(10)
    check_batch_stream(
        lambda *, shard_index, shard_count: ExampleStream(
            source, batch_size=4, shard_index=shard_index, shard_count=shard_count
        ),
        shard_counts=(1, 2, 4),
    )


@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 12), batch_size=st.integers(1, 5), seed=st.integers(0, 99), shuffle=st.booleans())
def test_every_epoch_has_every_example_once(size: int, batch_size: int, seed: int, shuffle: bool) -> None:
    stream = ExampleStream(examples(size), batch_size=batch_size, seed=seed, shuffle=shuffle)
    found = numbers(stream, -(-3 * size // batch_size))
    stream.close()
    epochs = [found[i * size : (i + 1) * size] for i in range(3)]
    assert all(sorted(epoch) == list(range(size)) for epoch in epochs)
    if not shuffle:
        assert epochs == [list(range(size))] * 3


def test_orders_differ_between_epochs_and_seeds() -> None:
    first, other = (numbers(ExampleStream(examples(50), batch_size=50, seed=seed), 2) for seed in (0, 1))
    assert len({tuple(order) for order in (first[:50], first[50:], other[:50])}) == 3


def test_mapped() -> None:
    doubled = Mapped(examples(5), lambda example: {**example, "images": 2 * example["images"]}, name="doubled")
    check_source(doubled)
    assert doubled[3]["images"].max() == 6
    stream = ExampleStream(doubled, batch_size=2, shuffle=False)
    assert next(stream)["images"].shape == (2, 2, 3)
    assert json.loads(stream.get_state())["order"]["data"].endswith("/doubled")
    assert list(stream.origins(stream.get_state())) == ["example 2", "example 3"]


def test_states_of_other_streams_are_refused() -> None:
    stream = ExampleStream(examples(5), batch_size=2)
    with pytest.raises(DataError, match="another stream of batches"):
        stream.set_state(ExampleStream(examples(6), batch_size=2).get_state())
    with pytest.raises(DataError, match="not a state"):
        stream.set_state(b"{}")
    with pytest.raises(DataError, match="got none"):
        ExampleStream([], batch_size=2)


def test_one_pass_in_order() -> None:
    batches = ExampleBatches(examples(5), batch_size=4)
    for _ in range(2):
        assert [batch["targets"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, -1, -1, -1]]
    halves = [ExampleBatches(examples(5), batch_size=4, shard_index=i, shard_count=2) for i in (0, 1)]
    assert [half[1]["targets"].tolist() for half in halves] == [[4, -1], [-1, -1]]
    assert [b["targets"].tolist() for b in ExampleBatches(examples(40), batch_size=2, max_batches=2)] == [
        [0, 10],
        [20, 30],
    ]
    with pytest.raises(IndexError):
        batches[2]
