"""Tokenise a corpus once, into a folder that ``PreparedCorpus`` reads.

The records of the corpus are cut into shards, by a plan that depends on the corpus alone. Each shard is tokenised by one of several
processes and appears in the folder under its name only when it is complete, its part of the index last. So whatever is killed, and
whenever, the next run does what is not there yet; and what is there at the end is the same, byte for byte, for any number of
processes and interruptions. At last the parts of the index are joined, and the manifest is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._array_record import WRITER_OPTIONS
from ._errors import BadRecordError, BadRecordLog, DataError, Reason
from ._files import find_files
from ._holdout import content_digest
from ._prepared_corpus import FORMAT, INDEX, MANIFEST, PIECE, PreparedCorpus, differences, read_manifest
from ._read import OnProgress
from ._record import Record
from ._remote import File, size_of
from ._sources import open_records
from ._tokenizer_identity import tokenizer_identity
from .protocols import Encoder, Source, Tokenizer

_PLAN = "ax-plan.json"
_PARTIAL = ".partial"
_MEMORY_WEIGHT = 4_096  # what a record that is in no file counts for, in bytes
_RECORDS_PER_REPORT = 64
_SECONDS_PER_REPORT = 0.2


@dataclass(frozen=True)
class _SourceState:
    """What a source of records is known by, now and when an interrupted preparation goes on."""

    name: str
    size: int
    modified: int  # nanoseconds since the epoch


@dataclass(frozen=True)
class _Range:
    """Records ``start`` to ``stop`` of one source."""

    source: int
    start: int
    stop: int


_Origin = File | Source[Record]


def prepare_corpus(
    corpus: Sequence[str | os.PathLike[str] | Source[Record]],
    folder: str | os.PathLike[str],
    *,
    tokenizer: Tokenizer,
    encoder: Encoder,
    tokenizer_config: str = "",
    processes: int = 1,
    on_bad_record: str = "error",
    shard_bytes: int = 64 * 2**20,
    on_progress: OnProgress | None = None,
) -> PreparedCorpus:
    """Tokenise a corpus into ``folder``, or finish what an earlier call there began; a complete one is returned as it is.

    Args:
        corpus: Files, folders and URLs, as ``find_files`` takes them, and sources of records.
        folder: Where to. Made when it isn't there; one that holds anything else is refused.
        tokenizer: What the manifest names as the one to read the corpus with.
        encoder: Makes a document of a record; ``TextEncoder``, say, built with the same tokenizer.
        tokenizer_config: The text of the config that the tokenizer was built by, kept for who reads the corpus.
        processes: How many work at a time. Above 1 they are started afresh (as ``spawn`` does): a script that calls this needs
            its ``if __name__ == "__main__":``, and sources and encoder must pickle.
        on_bad_record: ``"error"`` stops at one, ``"skip"`` leaves it out and tells of it in the manifest.
        shard_bytes: How much of the corpus goes into a shard, about.
        on_progress: Told the bytes of the corpus that are done, and all.

    Raises:
        DataError: The folder holds a corpus of other files, another tokenizer, encoder or size of shards; or there is nothing to
            prepare. As ``BadRecordError``, when it is one file or record.
    """
    out = Path(folder)
    if processes < 1 or shard_bytes < 1:
        raise DataError(f"wanted at least 1 of each, got processes={processes} and shard_bytes={shard_bytes}")
    BadRecordLog(on_bad_record)  # refuses another word before anything is read
    origins, empty = _origins(corpus)
    identity = {
        "format": FORMAT,
        "sources": [asdict(_state(origin)) for origin in origins],
        "tokenizer": tokenizer_identity(tokenizer),
        "encoder": encoder.identity,
        "arrays": {name: dtype.str for name, dtype in encoder.dtypes.items()},
        "shard_bytes": shard_bytes,
    }
    if (out / MANIFEST).exists():
        _refuse_another(out, read_manifest(out), identity)
    else:
        plan = _begin(out, identity, origins, empty, encoder=encoder, on_bad_record=on_bad_record)
        _Preparation(out, origins, encoder, plan, on_bad_record).run(processes, on_progress)
        _finish(out, {**identity, "tokenizer_config": tokenizer_config}, plan)
    _tidy(out)
    return PreparedCorpus(out)


def _origins(corpus: Sequence[str | os.PathLike[str] | Source[Record]]) -> tuple[list[_Origin], list[File]]:
    origins: dict[object, _Origin] = {}
    empty: list[File] = []
    for part in corpus:
        if isinstance(part, str | os.PathLike):
            files = find_files([part])
            empty += files.empty
            for file in files.paths:
                origins.setdefault(file.resolve() if isinstance(file, Path) else file, file)
        else:
            origins[id(part)] = part
    if not origins:
        raise DataError("nothing to prepare: the corpus has no parts")
    return list(origins.values()), empty


def _state(origin: _Origin) -> _SourceState:
    if isinstance(origin, Path):
        try:
            modified = origin.stat().st_mtime_ns
        except OSError:  # reading it will tell what is wrong
            modified = 0
        return _SourceState(str(origin), size_of(origin), modified)
    if isinstance(origin, File):
        return _SourceState(str(origin), origin.size, 0)
    name = origin[0].path if len(origin) else "memory"
    return _SourceState(name, _MEMORY_WEIGHT * len(origin), 0)


def _begin(
    out: Path,
    identity: Mapping[str, Any],
    origins: Sequence[_Origin],
    empty: Sequence[File],
    *,
    encoder: Encoder,
    on_bad_record: str,
) -> dict[str, Any]:
    """The plan that is in the folder, or a new one."""
    written = out / _PLAN
    if written.exists():
        plan: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
        _refuse_another(out, plan, identity)
        return plan
    out.mkdir(parents=True, exist_ok=True)
    others = sorted(name for name in os.listdir(out) if not name.endswith(_PARTIAL))
    if others:
        raise DataError(f"{out}: holds something else ({', '.join(others[:3])}); prepare into a folder of its own")
    bad_records = BadRecordLog(on_bad_record)
    for file in empty:
        bad_records.count(BadRecordError(str(file), None, Reason.EMPTY_FILE, "0 bytes"))
    counts = []
    for origin in origins:
        try:
            counts.append(len(_open(origin, encoder)))
        except BadRecordError as error:
            bad_records.add(error)
            counts.append(0)
    sizes = [state["size"] for state in identity["sources"]]
    shards = [[asdict(each) for each in shard] for shard in _shards(counts, sizes, identity["shard_bytes"])]
    plan = {
        **identity,
        "records": counts,
        "shards": shards,
        "bad_records": bad_records.counts,
        "bad_examples": bad_records.examples,
    }
    _write_json(written, plan)
    return plan


def _refuse_another(out: Path, written: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    there = {name: written[name] for name in wanted}
    if there == wanted:
        return
    old, new = ({state["name"]: state for state in each["sources"]} for each in (there, wanted))
    changed = [name for name in new if old.get(name) != new[name]] + [name for name in old if name not in new]
    if changed:
        what = f"of other files, or they changed since: {', '.join(changed[:3])}{' …' if len(changed) > 3 else ''}"
    else:
        what = "with other settings: " + differences(
            {**there, **there["tokenizer"], "sources": 0, "tokenizer": 0},
            {**wanted, **wanted["tokenizer"], "sources": 0, "tokenizer": 0},
        )
    raise DataError(f"{out}: holds a corpus {what}; prepare into another folder, or delete this one")


def _shards(counts: Sequence[int], sizes: Sequence[int], shard_bytes: int) -> Iterator[list[_Range]]:
    """The records of all sources in order, cut where about ``shard_bytes`` are together."""
    ranges: list[_Range] = []
    room = shard_bytes
    for source, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        start = 0
        while start < count:
            fit = min(count - start, max(1, room * count // max(size, 1)))
            ranges.append(_Range(source, start, start + fit))
            start += fit
            room -= max(1, fit * size // count)
            if room <= 0 or start < count:
                yield ranges
                ranges, room = [], shard_bytes
    if ranges:
        yield ranges


def _open(origin: _Origin, encoder: Encoder) -> Source[Record]:
    if isinstance(origin, File):
        return open_records(origin, text_field=encoder.fields[0], columns=encoder.fields)
    return origin


class _Preparation:
    """What a process needs to do any shard of a corpus. Travels between processes."""

    def __init__(
        self, out: Path, origins: Sequence[_Origin], encoder: Encoder, plan: Mapping[str, Any], on_bad_record: str
    ) -> None:
        self._out = out
        self._origins = origins
        self._encoder = encoder
        self._on_bad_record = on_bad_record
        self._shards = [[_Range(**each) for each in shard] for shard in plan["shards"]]
        self._sizes = [int(state["size"]) for state in plan["sources"]]
        self._counts = [int(count) for count in plan["records"]]
        self._opened: tuple[int, Source[Record]] | None = None

    def run(self, processes: int, on_progress: OnProgress | None) -> None:
        """Do the shards that aren't there yet."""
        todo = [shard for shard in range(len(self._shards)) if not (self._out / _part(shard)).exists()]
        total = sum(self._sizes)
        done = total - sum(self._weight(each.source, each.start, each.stop) for s in todo for each in self._shards[s])

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            if on_progress is not None:
                on_progress(done, total)

        if processes == 1 or len(todo) < 2:
            for shard in todo:
                self.do(shard, advance)
            return
        context = multiprocessing.get_context("spawn")
        count = context.Value("q", 0)
        with ProcessPoolExecutor(min(processes, len(todo)), context, _become_worker, (self, count)) as pool:
            running = {pool.submit(_work, shard) for shard in todo}
            seen = 0
            try:
                while running:
                    finished, running = wait(running, _SECONDS_PER_REPORT, FIRST_COMPLETED)
                    now = count.value
                    advance(now - seen)
                    seen = now
                    for future in finished:
                        future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def do(self, shard: int, advance: Callable[[int], None]) -> None:
        """Write a shard, and then its part of the index."""
        from array_record.python.array_record_module import ArrayRecordWriter  # type: ignore[import-untyped]

        bad_records = BadRecordLog(self._on_bad_record)
        index: dict[str, list[object]] = {name: [] for name in INDEX}
        num_pieces = 0
        with _appearing(self._out / _shard(shard)) as partial:
            writer = ArrayRecordWriter(str(partial), WRITER_OPTIONS)
            for each in self._shards[shard]:
                for record in self._records(each, bad_records, advance):
                    try:
                        arrays, num_bytes = self._encoder(record)
                    except BadRecordError as error:
                        bad_records.add(error)
                        continue
                    kept = [np.ascontiguousarray(arrays[name], dtype) for name, dtype in self._encoder.dtypes.items()]
                    length = len(kept[0])
                    for start in range(0, length, PIECE):
                        writer.write(b"".join(array[start : start + PIECE].tobytes() for array in kept))
                    digest = content_digest(b"".join(array.tobytes() for array in kept))
                    entry = (length, num_pieces, num_bytes, list(digest), each.source, record.number or 0)
                    num_pieces += -(-length // PIECE)
                    for name, value in zip(INDEX, entry, strict=True):
                        index[name].append(value)
            writer.close()
        columns = {name: np.array(index[name], dtype).reshape(-1, *shape) for name, (dtype, shape) in INDEX.items()}
        told = json.dumps({"bad_records": bad_records.counts, "bad_examples": bad_records.examples}).encode()
        with _appearing(self._out / _part(shard)) as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **columns, told=np.frombuffer(told, np.uint8))

    def _records(self, each: _Range, bad_records: BadRecordLog, advance: Callable[[int], None]) -> Iterator[Record]:
        if self._opened is None or self._opened[0] != each.source:
            self._opened = each.source, _open(self._origins[each.source], self._encoder)
        records = self._opened[1]
        told = each.start
        for index in range(each.start, each.stop):
            try:
                yield records[index]
            except BadRecordError as error:
                bad_records.add(error)
            if index + 1 == each.stop or index + 1 - told == _RECORDS_PER_REPORT:
                advance(self._weight(each.source, told, index + 1))
                told = index + 1

    def _weight(self, source: int, start: int, stop: int) -> int:
        """The bytes that records of a source count for; those of all together are the source's."""
        size, count = self._sizes[source], self._counts[source]
        return size * stop // count - size * start // count


_worker: tuple[_Preparation, Any] | None = None
"""What a worker was started with."""


def _become_worker(preparation: _Preparation, count: Any) -> None:
    global _worker
    _worker = preparation, count
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        parent.join()
        os._exit(1)

    # A killed parent says nothing to its workers, and they'd wait forever.
    threading.Thread(target=leave_with_parent, daemon=True).start()


def _work(shard: int) -> None:
    assert _worker is not None
    preparation, count = _worker

    def advance(amount: int) -> None:
        with count.get_lock():
            count.value += amount

    preparation.do(shard, advance)


def _finish(out: Path, identity: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Join the parts of the index, and write the manifest."""
    num_shards = len(plan["shards"])
    counts: Counter[str] = Counter(plan["bad_records"])
    examples: list[str] = list(plan["bad_examples"])
    documents = []
    for shard in range(num_shards):
        with np.load(out / _part(shard)) as part:
            documents.append(len(part["lengths"]))
            told = json.loads(part["told"].tobytes())
        counts.update(told["bad_records"])
        examples += told["bad_examples"]
    total = sum(documents)
    if total == 0:
        raise DataError(f"no documents in {len(identity['sources'])} sources; {counts.total()} bad records")
    digest = hashlib.blake2b(json.dumps(identity["arrays"]).encode(), digest_size=16)
    sums = dict.fromkeys(INDEX, 0)
    for name, (dtype, shape) in INDEX.items():
        with _appearing(out / f"{name}.npy") as partial:
            joined = np.lib.format.open_memmap(partial, "w+", dtype, (total, *shape))
            start = 0
            for shard in range(num_shards):
                with np.load(out / _part(shard)) as part:
                    values = part[name]
                joined[start : start + len(values)] = values
                start += len(values)
                if name in ("lengths", "num_bytes"):
                    sums[name] += int(values.sum())
                elif name == "digests":
                    digest.update(values.tobytes())
            joined.flush()
    manifest = {
        **identity,
        "fingerprint": digest.hexdigest(),
        "counts": {"documents": total, "tokens": sums["lengths"], "bytes": sums["num_bytes"]},
        "bad_records": dict(sorted(counts.items())),
        "bad_examples": examples[: BadRecordLog.MAX_EXAMPLES],
        "shards": [{"file": _shard(shard), "documents": documents[shard]} for shard in range(num_shards)],
    }
    _write_json(out / MANIFEST, manifest)


def _tidy(out: Path) -> None:
    """Remove what only an unfinished preparation needs. The plan goes last: until then, this can be done again."""
    for pattern in (f"*{_PARTIAL}", "part-*.npz", _PLAN):
        for file in out.glob(pattern):
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """Another name to write a file under, that becomes ``path`` when it is whole and on the disk."""
    partial = path.with_name(f"{path.name}.{os.getpid()}{_PARTIAL}")
    yield partial
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.replace(path)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with _appearing(path) as partial:
        partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _shard(shard: int) -> str:
    return f"shard-{shard:05}.arrayrecord"


def _part(shard: int) -> str:
    return f"part-{shard:05}.npz"
