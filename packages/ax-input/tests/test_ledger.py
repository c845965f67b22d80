import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from ax_input import BatchStream, DataError, Ledger, MemoryDocuments, Packing, Phase, Rows, Span
from ax_input.testing import check_batch_stream
from hypothesis import given, settings
from hypothesis import strategies as st

EOS = 0
COUNTS = (1, 2, 3, 4, 8)
BATCH_SIZE = 24  # which all of them divide


def rows_of(
    lengths: Sequence[int], *, first: int = 1, seq_length: int = 8, mode: str = "stream", segments: bool = True
) -> Rows:
    """Rows of documents whose tokens are ``first``, ``first + 1``, …"""
    ends = np.cumsum(np.array(lengths, np.int64))
    tokens = np.arange(first, first + int(ends[-1]), dtype=np.uint16)
    origins = [f"{first}/{i}.txt" for i in range(len(lengths))]
    documents = MemoryDocuments(tokens, starts=ends - lengths, ends=ends, origins=origins, num_bytes=len(tokens))
    packing = Packing.Config(segments=segments, window=7).clone(mode=mode).build()
    return Rows(documents, packing=packing, seq_length=seq_length, eos_id=EOS, seed=0)


def phase(begin: int = 0, **weights: float) -> Phase:
    return Phase.Config(begin=begin, weights=weights).build()


SOURCES = {
    "code": rows_of([5, 9, 30, 2, 0, 17]),
    "prose": rows_of([40, 3, 3], first=1000),
    "web": rows_of([64], first=2000),
}
PHASES = (phase(code=2, prose=1), phase(3, web=1, code=1))


def ledger(
    sources: Mapping[str, Rows] = SOURCES,
    *,
    batch_size: int = 4,
    seed: int = 0,
    shuffle: bool = True,
    phases: Sequence[Phase] = PHASES,
    block_rows: int = 10,
    skip: Sequence[tuple[int, int]] = (),
) -> Ledger:
    return Ledger(
        sources, batch_size=batch_size, seed=seed, shuffle=shuffle, phases=phases, block_rows=block_rows, skip=skip
    )


lengths_lists = st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any)


@st.composite
def ledgers(draw: st.DrawFn, batch_size: int) -> Ledger:
    """Any mixture of up to three sources, any packing, any phases, any skips."""
    names = ["code", "prose", "web"][: draw(st.integers(1, 3))]
    seq_length, mode = draw(st.integers(2, 10)), draw(st.sampled_from(["stream", "first_fit", "best_fit"]))
    sources = {
        name: rows_of(
            # Enough for one batch of the whole, whatever else is drawn.
            [*draw(lengths_lists), batch_size * 10],
            first=1 + 10_000 * i,
            seq_length=seq_length,
            mode=mode,
        )
        for i, name in enumerate(names)
    }
    begins = [0, *draw(st.lists(st.integers(1, 6), unique=True, max_size=2).map(sorted))]
    weights = st.dictionaries(st.sampled_from(names), st.integers(1, 5).map(float), min_size=1)
    phases = [phase(begin, **draw(weights)) for begin in begins]
    skip = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3)).map(lambda s: (s[0], sum(s))), max_size=2))
    return Ledger(
        sources,
        batch_size=batch_size,
        seed=draw(st.integers(0, 2**40)),
        shuffle=draw(st.booleans()),
        phases=phases,
        block_rows=draw(st.integers(16, 40)),
        skip=skip,
    )


def assert_equal(got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
    assert got.keys() == wanted.keys()
    for name in wanted:
        assert np.array_equal(got[name], wanted[name]), name


@settings(max_examples=6, deadline=None)
@given(book=ledgers(BATCH_SIZE), counts=st.permutations(COUNTS))
def test_the_stream_is_the_same_for_any_number_of_processes(book: Ledger, counts: list[int]) -> None:
    def make_stream(*, shard_index: int, shard_count: int) -> BatchStream:
        return BatchStream(book, shard_index=shard_index, shard_count=shard_count)

    check_batch_stream(make_stream, num_batches=4, shard_counts=counts)


@settings(max_examples=25, deadline=None)
@given(book=ledgers(BATCH_SIZE), start=st.integers(0, 10**9))
def test_parts_of_a_batch_are_parts_of_it(book: Ledger, start: int) -> None:
    for batch in (0, 5, start):
        whole = book.read(batch)
        for count in COUNTS:
            own = BATCH_SIZE // count
            for index in (0, count // 2, count - 1):
                rows = slice(index * own, (index + 1) * own)
                assert_equal(book.read(batch, rows), {name: values[rows] for name, values in whole.items()})


@settings(max_examples=25, deadline=None)
@given(book=ledgers(4))
def test_no_place_is_lost_or_repeated_within_an_epoch(book: Ledger) -> None:
    """Of each source, each epoch that was gone through holds every place of every document once."""
    num_batches = 60
    places: dict[tuple[str, int], Counter[tuple[int, int]]] = defaultdict(Counter)
    for span in itertools.chain.from_iterable(map(book.spans, range(num_batches))):
        of_epoch = places[span.source, span.epoch]
        of_epoch.update((span.document, place) for place in range(span.begin, span.end))
    for name, epochs in book.epochs(num_batches).items():
        documents = book.sources[name].documents
        every = Counter((d, place) for d in range(len(documents)) for place in range(int(documents.lengths[d]) + 1))
        for epoch in range(int(epochs)):
            assert places[name, epoch] == every
        assert all(count == 1 for count in places[name, int(epochs)].values())
        assert not places[name, int(epochs) + 1]


@settings(max_examples=25, deadline=None)
@given(book=ledgers(4), batch=st.integers(0, 50))
def test_spans_tell_what_is_in_a_batch(book: Ledger, batch: int) -> None:
    arrays = book.read(batch)
    covered = np.zeros(arrays["tokens"].shape, np.bool_)
    for span in book.spans(batch):
        documents = book.sources[span.source].documents
        tokens = documents[span.document]["tokens"].tolist()
        where = span.row, slice(span.offset, span.offset + span.end - span.begin)
        assert arrays["targets"][where].tolist() == [*tokens, EOS][span.begin : span.end]
        assert arrays["tokens"][where].tolist() == [EOS, *tokens][span.begin : span.end]
        assert len(set(arrays["segments"][where].tolist())) == 1
        assert span.origin == documents.origin(span.document)
        covered[where] = True
    assert (covered == (arrays["segments"] > 0)).all()
    assert (arrays["targets"][~covered] == -1).all()


def test_a_span_is_a_line() -> None:
    span = Span(3, "code", 1, 4711, "src/a.py:12", 512, 2560, 0)
    assert str(span) == "row 3: code: src/a.py:12, document 4,711, tokens 512 to 2,560, epoch 1"


def test_each_epoch_has_an_order_of_its_own() -> None:
    book = ledger({"code": rows_of([799])}, batch_size=10, phases=())
    orders = [
        [(span.document, span.begin) for batch in range(e * 10, e * 10 + 10) for span in book.spans(batch)]
        for e in range(4)
    ]
    assert len(set(map(tuple, orders))) == 4
    assert len({tuple(sorted(order)) for order in orders}) == 1
    unshuffled = ledger({"code": rows_of([799])}, batch_size=10, phases=(), shuffle=False)
    assert [span.begin for batch in range(20) for span in unshuffled.spans(batch)] == [*range(0, 800, 8)] * 2


def test_the_order_of_a_source_is_its_own() -> None:
    """Another source, or other weights, change when a row comes, not which comes after which."""

    def of_code(book: Ledger) -> list[tuple[int, int]]:
        spans = itertools.chain.from_iterable(map(book.spans, range(30)))
        return [(span.document, span.begin) for span in spans if span.source == "code"][:40]

    alone = of_code(ledger(phases=[phase(code=1)]))
    assert of_code(ledger(phases=[phase(code=1, web=1)])) == alone
    assert of_code(ledger({"code": SOURCES["code"]}, phases=())) == alone
    assert of_code(ledger(phases=[phase(code=1)], seed=1)) != alone


def test_without_phases_sources_come_by_their_sizes() -> None:
    book = ledger(phases=(), block_rows=100)
    num_rows = {name: len(rows) for name, rows in SOURCES.items()}
    epochs = book.epochs(25 * sum(num_rows.values()))
    assert all(abs(value - 100) < 4 for value in epochs.values())
    assert book.mean_epochs(25 * sum(num_rows.values())) == 100


def test_without_phases_a_small_source_comes_too() -> None:
    book = ledger({"large": rows_of([8 * 4000 - 1]), "small": rows_of([15], first=40_000)}, phases=(), block_rows=10)
    rows = Counter(span.source for batch in range(2001) for span in book.spans(batch))
    assert rows == {"large": 8000, "small": 4}
    assert book.epochs(2001) == {"large": 2.0, "small": 2.0}


def test_epochs_are_counted() -> None:
    book = ledger({"a": rows_of([79]), "b": rows_of([31])}, phases=[phase(a=1, b=1)], block_rows=2, batch_size=2)
    assert book.epochs(0) == {"a": 0, "b": 0}
    assert book.epochs(10) == {"a": 1.0, "b": 2.5}
    assert book.mean_epochs(7) == 1.0


ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)).map(lambda s: (s[0], sum(s))), max_size=5)


@settings(max_examples=100, deadline=None)
@given(skip=ranges)
def test_skipped_batches_are_never_dealt(skip: list[tuple[int, int]]) -> None:
    book = ledger(skip=skip)
    left_out = {batch for begin, end in skip for batch in range(begin, end)}
    dealt = [batch for batch in range(80) if batch not in left_out]
    assert [book.batch_at(step) for step in range(len(dealt))] == dealt
    for batch in range(80):
        assert book.step_of(batch) == sum(earlier < batch for earlier in dealt)


def test_a_skip_changes_nothing_else() -> None:
    plain, skipping = ledger(), ledger(skip=[(2, 4), (6, 7)])
    streams = BatchStream(plain), BatchStream(skipping)
    batches = [next(streams[0]) for _ in range(10)]
    for batch in (0, 1, 4, 5, 7, 8, 9):
        assert_equal(next(streams[1]), batches[batch])


def resume(saved: Ledger, num_batches: int, other: Ledger) -> BatchStream:
    stream = BatchStream(saved)
    for _ in range(num_batches):
        next(stream)
    resumed = BatchStream(other)
    resumed.set_state(stream.get_state())
    return resumed


def test_what_lies_ahead_may_change() -> None:
    """A later phase, a later skip, a source that only they use, may come, change and go while a run is stopped."""
    few = {name: SOURCES[name] for name in ("code", "prose")}
    saved = ledger(few, phases=[phase(code=2, prose=1)], skip=[(1, 2), (9, 11)])
    for other in (
        ledger(phases=[phase(code=2, prose=1), phase(4, web=1)], skip=[(1, 2)]),
        ledger(phases=[phase(code=2, prose=1), phase(9, web=1)], skip=[(1, 2), (4, 6)]),
        ledger(few, phases=[phase(code=4, prose=2)], skip=[(1, 2), (9, 99)]),
    ):
        stream = resume(saved, 3, other)  # batches 0, 2, 3
        first = other.batch_at(other.step_of(4))
        assert_equal(next(stream), other.read(first))
    assert first == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 8}, r"batch_size: was 4, is 8"),
        ({"seed": 1}, r"seed: was 0, is 1"),
        ({"shuffle": False}, r"shuffle: was True, is False"),
        ({"block_rows": 20}, r"phases\.0\.block_rows: was 10, is 20"),
        (
            {"phases": (phase(code=1, prose=1), PHASES[1])},
            r"phases\.0\.code: was 7, is 5; phases\.0\.prose: was 3, is 5",
        ),
        ({"phases": PHASES[:1]}, r"phases\.3\.block_rows: was 10, is None; .*sources\.web\.data: was '\w+', is None"),
        ({"phases": (PHASES[0], phase(2, code=1, web=1))}, r"phases\.2\.block_rows: was None, is 10"),
        ({"skip": ((1, 2),)}, r"skip: was \[\], is \[\[1, 2\]\]"),
        ({"sources": {**SOURCES, "code": rows_of([4, 99])}}, r"sources\.code\.data: was '\w+', is '\w+'"),
        (
            {"sources": {name: rows_of([99], mode="best_fit") for name in SOURCES}},
            r"sources\.code\.packing: was 'stream', is 'best_fit'",
        ),
    ],
)
def test_what_lies_behind_may_not(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=rf"another stream of batches \(.*{message}"):
        resume(ledger(), 5, ledger(**change))


def test_before_the_first_batch_the_first_phase_counts() -> None:
    with pytest.raises(DataError, match=r"phases\.0\.code: was 7, is 5"):
        resume(ledger(), 0, ledger(phases=[phase(code=1, prose=1)]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": {}}, "wanted at least one source"),
        ({"batch_size": 0}, "batch_size: wanted at least 1, got 0"),
        ({"skip": [(3, 3)]}, r"skip: wanted ranges .*got \(3, 3\)"),
        ({"skip": [(-1, 3)]}, r"got \(-1, 3\)"),
        ({"sources": {"code": rows_of([9]), "web": rows_of([9], seq_length=4)}}, "rows of one length and kind"),
        ({"sources": {"code": rows_of([9]), "web": rows_of([9], segments=False)}}, "rows of one length and kind"),
        ({"sources": {"code": rows_of([9])}, "phases": ()}, r"10 tokens are 2 rows of 8, less than one batch of 4"),
        ({"phases": [phase(cod=1)]}, "no source is called cod"),
    ],
)
def test_wrong_settings(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        ledger(**change)


def test_an_empty_source_is_named() -> None:
    packing = Packing.Config(mode="best_fit", long="leave_out", segments=True).build()
    rows = Rows(rows_of([99]).documents, packing=packing, seq_length=8, eos_id=EOS)
    with pytest.raises(DataError, match="the source 'long' has no documents to make rows of"):
        ledger({**SOURCES, "long": rows})
