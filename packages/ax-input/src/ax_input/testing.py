"""Conformance kits: what fits the seams of this package, and how to prove it.

Each kit is a function that raises AssertionError with what was wrong. None needs a test framework.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from ._record import Record
from .protocols import Corpus, Encoder, Source, SupportsParts, TokenDocuments, Tokenizer

T = TypeVar("T")

SAMPLE_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "def f(x):\n\treturn x  # two spaces\n",
    "Größe, naïve, 東京, שלום, 🙂🏽",
    "\u0000 control \u007f and a line\r\nend",
    " leading and trailing ",
)
"""Texts that a tokenizer is tried on unless others are given."""


class Stream(Protocol):
    """An endless stream of batches that can tell and retake its position."""

    def __next__(self) -> Mapping[str, np.ndarray]: ...

    def get_state(self) -> bytes:
        """The position after the last batch received."""
        ...

    def set_state(self, state: bytes, /) -> None:
        """Continue from a position."""
        ...


@runtime_checkable
class SupportsOrigins(Protocol):
    """A stream that can tell what a batch is made of."""

    def origins(self, state: bytes, /) -> Sequence[str]:
        """What the batch that follows the position ``state`` is made of, over all processes: a line a part."""
        ...


@runtime_checkable
class SupportsEpochs(Protocol):
    """A stream that knows how often it has gone through its data."""

    def epochs(self, state: bytes, /) -> float:
        """How many epochs were given out before the position ``state``."""
        ...


class MakeStream(Protocol):
    """Makes the stream of one of ``shard_count`` processes, at its beginning, each time anew."""

    def __call__(self, *, shard_index: int, shard_count: int) -> Stream:
        """The stream of process ``shard_index``."""
        ...


def check_source(source: Source[T], *, max_records: int = 64) -> None:
    """A source has a length, and gives equal records for equal indices in whatever order they are asked for."""
    length = len(source)
    assert length >= 0, f"len() is {length}"
    indices = sorted(
        {index * max(length - 1, 0) // max(max_records - 1, 1) for index in range(max_records)} if length else ()
    )
    forwards = [source[index] for index in indices]
    backwards = [source[index] for index in reversed(indices)][::-1]
    for index, first, second in zip(indices, forwards, backwards, strict=True):
        assert _equal(first, second), f"record {index} was {first!r}, and {second!r} when asked for again"
    assert len(source) == length, f"len() was {length} and became {len(source)} by reading"


def check_tokenizer(tokenizer: Tokenizer, *, texts: Sequence[str] = SAMPLE_TEXTS, lossless: bool = True) -> None:
    """Ids are ``[T]`` int32 in the vocabulary, the same every time; ``decode`` undoes ``encode`` and survives any ids.

    Set ``lossless=False`` for a tokenizer that normalises text.
    """
    vocab_size, eos_id = tokenizer.vocab_size, tokenizer.eos_id
    assert vocab_size > 0, f"vocab_size is {vocab_size}"
    assert 0 <= eos_id < vocab_size, f"eos_id {eos_id} is outside of the vocabulary of {vocab_size}"
    empty = tokenizer.encode("")
    assert empty.shape == (0,), f"the empty text has ids {empty!r}; encode adds no marks"
    assert tokenizer.decode([]) == "", f"no ids give the text {tokenizer.decode([])!r}"
    assert tokenizer.decode([eos_id]) == "", f"the end mark gives the text {tokenizer.decode([eos_id])!r}"
    for text in texts:
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int32, f"ids of {text!r} are {ids.dtype}, wanted int32"
        assert ids.ndim == 1, f"ids of {text!r} have shape {ids.shape}, wanted [T]"
        outside = ids[(ids < 0) | (ids >= vocab_size)]
        assert not outside.size, f"ids of {text!r} outside of the vocabulary of {vocab_size}: {outside[:5]}"
        assert eos_id not in ids, f"ids of {text!r} hold the end mark {eos_id}"
        assert np.array_equal(ids, tokenizer.encode(text)), f"ids of {text!r} differ when asked for again"
        decoded = tokenizer.decode(ids)
        assert decoded == tokenizer.decode(ids.tolist()), (
            f"{text!r}: an array and a list of the same ids give other texts"
        )
        if lossless:
            assert decoded == text, f"{text!r} came back as {decoded!r}"
        for end in range(len(ids)):
            assert isinstance(tokenizer.decode(ids[:end]), str), f"the first {end} ids of {text!r} give no text"


def check_token_documents(documents: TokenDocuments, *, max_documents: int = 64) -> None:
    """Documents are as long as they say, the same every time, of one kind, and known by where they came from.

    Of one that ``SupportsParts``, every part is that part of the whole.
    """
    check_source(documents, max_records=max_documents)
    lengths, fingerprint = documents.lengths, documents.fingerprint
    assert lengths.dtype == np.int64, f"lengths are {lengths.dtype}, wanted int64"
    assert lengths.shape == (len(documents),), (
        f"lengths have shape {lengths.shape}, there are {len(documents)} documents"
    )
    kind: Mapping[str, np.dtype] | None = None
    for index in range(min(len(documents), max_documents)):
        origin = documents.origin(index)
        assert isinstance(origin, str), f"the origin of document {index} is {origin!r}, wanted text"
        assert origin, f"document {index} has no origin"
        document, length = documents[index], int(lengths[index])
        for name, array in document.items():
            assert array.shape == (length,), f"{origin}: {name!r} has shape {array.shape}, its length is {length}"
        kind = kind or {name: array.dtype for name, array in document.items()}
        assert {name: array.dtype for name, array in document.items()} == kind, (
            f"{origin}: the first document is {kind}"
        )
        assert kind.get("tokens") == np.int32, f"{origin}: tokens are {kind.get('tokens')}, wanted int32"
        if "weights" in kind:
            assert kind["weights"] == np.float32, f"{origin}: weights are {kind['weights']}, wanted float32"
        if isinstance(documents, SupportsParts):
            for begin, end in (
                (0, length),
                (0, 0),
                (length, length),
                (length // 3, length // 2),
                (length // 2, length),
            ):
                part = documents.part(index, begin, end)
                whole = {name: array[begin:end] for name, array in document.items()}
                assert _equal(part, whole), f"{origin}: tokens {begin} to {end} are not that part of the whole"
    assert documents.fingerprint == fingerprint, "the fingerprint changed by reading"


def check_encoder(encoder: Encoder, records: Sequence[Record]) -> None:
    """Documents are of the arrays that are told, fit how they are kept, and are the same every time, in other processes too.

    ``records``: some that it can encode, in one of which it must find tokens.
    """
    assert encoder.identity, "the identity is empty: encoders couldn't be told apart"
    assert encoder.fields, "no fields are looked at: a text without fields has nowhere to go"
    assert "tokens" in encoder.dtypes, f"no tokens among the arrays {sorted(encoder.dtypes)}"
    travelled = pickle.loads(pickle.dumps(encoder))
    assert travelled.identity == encoder.identity, "the identity changes on the way to another process"
    found = 0
    for record in records:
        arrays, num_bytes = encoder(record)
        assert arrays.keys() == encoder.dtypes.keys(), (
            f"{record.origin}: {sorted(arrays)}, told {sorted(encoder.dtypes)}"
        )
        assert num_bytes >= 0, f"{record.origin}: stands for {num_bytes} bytes"
        shapes = {name: array.shape for name, array in arrays.items()}
        assert {len(shape) for shape in shapes.values()} == {1}, f"{record.origin}: wanted [T] each, got {shapes}"
        assert len(set(shapes.values())) == 1, f"{record.origin}: arrays of different lengths: {shapes}"
        assert arrays["tokens"].dtype == np.int32, f"{record.origin}: tokens are {arrays['tokens'].dtype}, wanted int32"
        for name, array in arrays.items():
            kept = array.astype(encoder.dtypes[name])
            assert np.array_equal(kept, array), f"{record.origin}: {name!r} doesn't survive as {encoder.dtypes[name]}"
        for other in (encoder, travelled):
            assert _equal(other(record)[0], arrays), f"{record.origin}: another document when encoded again"
        found += len(arrays["tokens"])
    assert found, "no tokens in any record"


def check_corpus(corpus: Corpus, *, max_documents: int = 64) -> None:
    """A corpus has documents to train on, others to validate on or None, and tells bytes per token and what it read."""
    check_token_documents(corpus.train, max_documents=max_documents)
    assert len(corpus.train), "there is nothing to train on"
    if corpus.validation is not None:
        check_token_documents(corpus.validation, max_documents=max_documents)
        assert len(corpus.validation), "nothing is held out, which is None and not an empty corpus"
        assert corpus.validation.fingerprint != corpus.train.fingerprint, "the same is held out and trained on"
    assert corpus.bytes_per_token > 0, f"{corpus.bytes_per_token} bytes per token"
    assert str(corpus.report), "the report says nothing"


def check_batch_stream(
    make_stream: MakeStream,
    *,
    num_batches: int = 6,
    shard_counts: Sequence[int] = (1, 2),
    states_move_between_counts: bool = True,
) -> None:
    """Streams are deterministic, resume exactly at any batch, and the shards partition the global batch in order.

    Each number of shards takes over from another in the middle. Origins and epochs, where a stream tells them, are told too.

    Args:
        make_stream: Makes fresh streams of the same data.
        num_batches: How far to look; choose more than an epoch to cover its end.
        shard_counts: Into how many parts to cut, in the order in which one takes over from another; each must divide the batch.
        states_move_between_counts: Whether a state of one number of shards holds for another.
    """
    reference = make_stream(shard_index=0, shard_count=1)
    states = [reference.get_state()]
    batches = []
    for _ in range(num_batches):
        batches.append(_copy(next(reference)))
        states.append(reference.get_state())
    for state in states:
        assert isinstance(state, bytes), f"get_state gave {type(state).__name__}, wanted bytes"
    _assert_well_formed(batches)

    again = make_stream(shard_index=0, shard_count=1)
    for step, batch in enumerate(batches):
        _assert_equal(next(again), batch, f"a second stream's batch {step}")

    for step, state in enumerate(states[:-1]):
        resumed = make_stream(shard_index=0, shard_count=1)
        resumed.set_state(state)
        assert resumed.get_state() == state, f"the state {state!r} that was set reads back as {resumed.get_state()!r}"
        for later, batch in enumerate(batches[step:], step):
            _assert_equal(next(resumed), batch, f"resumed after {step} batches: batch {later}")

    # `again` is at the end, with its read-ahead running: it has to go back, and stay there without being asked twice.
    again.set_state(states[0])
    _assert_equal(next(again), batches[0], "taken back to the beginning: batch 0")
    assert again.get_state() == states[1], "a stream that was taken back has another state than one that went there"

    # Every number of shards takes over from another on the way, where states move.
    for count, successor in zip(shard_counts, [*shard_counts[1:], shard_counts[0]], strict=True):
        middle = num_batches // 2
        shards = [make_stream(shard_index=index, shard_count=count) for index in range(count)]
        _assert_joined(shards, batches[: middle if states_move_between_counts else None], 0)
        if states_move_between_counts:
            taking_over = [make_stream(shard_index=index, shard_count=successor) for index in range(successor)]
            for index, shard in enumerate(taking_over):
                shard.set_state(shards[index % count].get_state())
            _assert_joined(taking_over, batches[middle:], middle)

    last = make_stream(shard_index=0, shard_count=1)
    if isinstance(last, SupportsOrigins):
        told = [list(last.origins(state)) for state in states]
        assert all(told), f"no origins of batch {[bool(lines) for lines in told].index(False)}"
        assert all(isinstance(line, str) for lines in told for line in lines), f"origins are not text: {told[0]}"
        shard = make_stream(shard_index=shard_counts[-1] - 1, shard_count=shard_counts[-1])
        assert isinstance(shard, SupportsOrigins), "a stream of many shards tells no origins, one of one does"
        if states_move_between_counts:
            assert [list(shard.origins(state)) for state in states] == told, (
                "a shard tells other origins than the whole"
            )
    if isinstance(last, SupportsEpochs):
        epochs = [last.epochs(state) for state in states]
        assert epochs[0] == 0, f"{epochs[0]} epochs before the first batch"
        assert epochs == sorted(epochs), f"epochs go back: {epochs}"
    _assert_equal(next(last), batches[0], "after origins and epochs were asked for: batch 0")


def _assert_joined(shards: Sequence[Stream], batches: Sequence[Mapping[str, np.ndarray]], start: int) -> None:
    for step, batch in enumerate(batches, start):
        parts = [next(shard) for shard in shards]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in batch}
        _assert_equal(joined, batch, f"{len(shards)} shards joined: batch {step}")
        sizes = {len(part[name]) for part in parts for name in batch}
        assert len(sizes) == 1, f"{len(shards)} shards: batch {step} is cut into unequal parts of {sorted(sizes)} rows"


def _assert_well_formed(batches: Sequence[Mapping[str, np.ndarray]]) -> None:
    for before, after in itertools.pairwise(batches):
        shapes = [{name: (value.shape, value.dtype) for name, value in batch.items()} for batch in (before, after)]
        assert shapes[0] == shapes[1], f"batches differ in names, shapes or dtypes: {shapes[0]} and {shapes[1]}"
    for name, value in batches[0].items():
        assert isinstance(value, np.ndarray), f"{name!r} is {type(value).__name__}, wanted a numpy array"
        assert value.ndim >= 1, f"{name!r} has no batch dim"
    sizes = {len(value) for value in batches[0].values()}
    assert len(sizes) == 1, f"the arrays of a batch have different numbers of rows: {sorted(sizes)}"


def _assert_equal(got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], what: str) -> None:
    assert got.keys() == wanted.keys(), f"{what}: wanted {sorted(wanted)}, got {sorted(got)}"
    for name, value in wanted.items():
        same = got[name].dtype == value.dtype and np.array_equal(got[name], value)
        assert same, f"{what} differs in {name!r}: wanted\n{value}\ngot\n{got[name]}"


def _copy(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in batch.items()}


def _equal(first: object, second: object) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_equal(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_equal, first, second))
    return bool(first == second)
