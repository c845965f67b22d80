"""Batches of windows: an endless shuffled stream to train on, and one pass in order to evaluate on.

The order is a function of (seed, number of windows, batch size) alone. Grain deals in *indices*: a fresh permutation per epoch,
epochs end to end, cut into global batches. Each process then gathers only its own rows, a contiguous part of every global
batch. So batch ``s`` of ``n`` processes is batch ``s`` of one process, and a position is valid for any number of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Protocol, cast, final

import numpy as np

from ._errors import DataError
from ._token_store import Windows

_READ_AHEAD = 2


class _Position(Protocol):
    """What is used of ``grain.DatasetIterator``, which ships no types."""

    def __next__(self) -> Mapping[str, np.ndarray]: ...

    def get_state(self) -> dict[str, object]: ...

    def set_state(self, state: object, /) -> None: ...

    def close(self) -> None: ...


@final
class BatchStream:
    """An endless stream of batches, ``tokens`` and ``targets`` of ``[B / shard_count, T]`` int32.

    A thread reads ahead; ``get_state`` is the position of what was received, whatever was read. States are bytes that can be
    kept, and set in another process. A state of another order (other data, seed, batch or sequence length) is refused.
    """

    def __init__(
        self,
        windows: Windows,
        *,
        batch_size: int,
        seed: int,
        shuffle: bool = True,
        shard_index: int = 0,
        shard_count: int = 1,
    ) -> None:
        # Imported here, for it takes seconds. It ships no types.
        import grain  # type: ignore[import-untyped]

        rows = own_rows(batch_size, shard_index, shard_count)
        if len(windows) < batch_size:
            raise DataError(
                f"too little text to train on: {windows.num_targets:,} tokens are {len(windows)} windows of "
                f"{windows.seq_length}, less than one batch of {batch_size}; give more text, or lower seq_length or batch_size"
            )
        self._order = {
            "data": windows.fingerprint,
            "seq_length": windows.seq_length,
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed if shuffle else None,
        }
        indices = grain.MapDataset.range(len(windows))
        if shuffle:
            indices = indices.shuffle(seed=_grain_seed(seed))
        # drop_remainder: nothing is dropped of an endless stream, but otherwise Grain rounds its length up by floating point,
        # which overflows for a batch of 1.
        batches = indices.repeat().batch(batch_size, drop_remainder=True)
        own_batches = batches.map(lambda batch: windows.gather(batch[rows]))
        reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_READ_AHEAD)
        self._position = cast(_Position, iter(own_batches.to_iter_dataset(reading)))

    def __iter__(self) -> Iterator[Mapping[str, np.ndarray]]:
        return self

    def __next__(self) -> Mapping[str, np.ndarray]:
        return next(self._position)

    def get_state(self) -> bytes:
        """The position after the last batch received, and the order that it is a position in, as JSON."""
        return json.dumps({"order": self._order, "position": self._position.get_state()}, sort_keys=True).encode()

    def set_state(self, state: bytes, /) -> None:
        """Continue from where ``get_state`` was called. Raises DataError when ``state`` is of another order."""
        try:
            saved = json.loads(state)
            order, position = dict(saved["order"]), saved["position"]
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"not a state of a BatchStream: {state[:80]!r}") from error
        if order != self._order:
            differences = "; ".join(
                f"{name}: was {order.get(name)!r}, is {self._order.get(name)!r}"
                for name in sorted(order.keys() | self._order.keys())
                if order.get(name) != self._order.get(name)
            )
            raise DataError(
                f"the saved position is one in another stream of batches ({differences}): restore the files, Python version "
                "and settings that the stream began with, or begin a new one"
            )
        self._position.set_state(position)

    def close(self) -> None:
        """Stop reading ahead; the stream can't be used after."""
        self._position.close()


@final
class EvaluationBatches:
    """A finite sequence of batches that can be iterated again and again; ``[B / shard_count, T]`` int32 each.

    All windows in order, the last batch filled up with rows that don't count; or, with ``max_batches``, as many windows as they
    hold, evenly spread over all.
    """

    def __init__(
        self,
        windows: Windows,
        *,
        batch_size: int,
        max_batches: int | None = None,
        shard_index: int = 0,
        shard_count: int = 1,
    ) -> None:
        if max_batches is not None and max_batches < 1:
            raise DataError(f"max_batches: wanted at least 1 or None, got {max_batches}")
        self._windows = windows
        self._batch_size = batch_size
        self._rows = own_rows(batch_size, shard_index, shard_count)
        all_batches = -(-len(windows) // batch_size)
        if max_batches is None or max_batches >= all_batches:
            self._indices = np.arange(all_batches * batch_size)
        else:
            count = max_batches * batch_size
            self._indices = np.arange(count) * len(windows) // count

    def __len__(self) -> int:
        return len(self._indices) // self._batch_size

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        if not 0 <= index < len(self):
            raise IndexError(f"{len(self)} batches, asked for {index}")
        batch = self._indices[index * self._batch_size : (index + 1) * self._batch_size]
        return self._windows.gather(batch[self._rows])

    def __iter__(self) -> Iterator[Mapping[str, np.ndarray]]:
        return (self[index] for index in range(len(self)))


def own_rows(batch_size: int, shard_index: int, shard_count: int) -> slice:
    """The rows of a global batch that are a shard's. Raises DataError when it can't be cut so."""
    if not 0 <= shard_index < shard_count:
        raise DataError(f"shard_index: wanted 0 to {shard_count - 1} (shard_count is {shard_count}), got {shard_index}")
    if batch_size < 1 or batch_size % shard_count:
        raise DataError(
            f"batch_size: wanted a multiple of shard_count ({shard_count}) that is at least 1, got {batch_size}"
        )
    own = batch_size // shard_count
    return slice(shard_index * own, (shard_index + 1) * own)


def _grain_seed(seed: int) -> int:
    # Grain permutes epoch e with seed + e, so neighbouring seeds would give the same epochs one later; and it wants 32 bits.
    digest = hashlib.blake2b(seed.to_bytes(16, "little", signed=True), digest_size=4, person=b"shuffle").digest()
    return int.from_bytes(digest, "little")
