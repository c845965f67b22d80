"""Tokenise a corpus once, into a folder that ``PreparedCorpus`` reads.

The records of the corpus are cut into shards, by a plan that depends on the corpus alone. Each shard is tokenised by one of several
processes and appears in the folder under its name only when it is complete, its part of the index last. So whatever is killed, and
whenever, the next run does what is not there yet; and what is there at the end is the same, byte for byte, for any number of
processes and interruptions. At last the parts of the index are joined, and the manifest is written.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import BadRecordError, BadRecordLog, DataError, Reason
from ._files import find_files
from ._prepared_corpus import FORMAT, INDEX, MANIFEST, PreparedCorpus, differences, read_manifest
from ._read import OnProgress
from ._record import Record
from ._remote import File, size_of
from ._shards import PARTIAL, Origin, Range, Shards, appearing, open_origin, part_name, shard_name, write_json
from ._tokenizer_identity import tokenizer_identity
from .protocols import Encoder, Source, Tokenizer

_PLAN = "ax-plan.json"
_MEMORY_WEIGHT = 4_096  # what a record that is in no file counts for, in bytes


@dataclass(frozen=True)
class _SourceState:
    """What a source of records is known by, now and when an interrupted preparation goes on."""

    name: str
    size: int
    modified: int  # nanoseconds since the epoch


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
        corpus: Files, folders and URLs, as ``find_files`` takes them, and sources of records. When it goes on, files are known by their
            path, size and time of change, and other sources by the path of their first record and their length.
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
        Shards(out, origins, encoder, plan, on_bad_record).run(processes, on_progress)
        _finish(out, {**identity, "tokenizer_config": tokenizer_config}, plan)
    _tidy(out)
    return PreparedCorpus(out)


def _origins(corpus: Sequence[str | os.PathLike[str] | Source[Record]]) -> tuple[list[Origin], list[File]]:
    origins: dict[object, Origin] = {}
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


def _state(origin: Origin) -> _SourceState:
    if isinstance(origin, Path):
        try:
            modified = origin.stat().st_mtime_ns
        except OSError:  # reading it will tell what is wrong
            modified = 0
        return _SourceState(str(origin), size_of(origin), modified)
    if isinstance(origin, File):
        return _SourceState(str(origin), size_of(origin), 0)
    try:
        name = origin[0].path if len(origin) else "memory"
    except BadRecordError as error:
        name = error.path
    return _SourceState(name, _MEMORY_WEIGHT * len(origin), 0)


def _begin(
    out: Path,
    identity: Mapping[str, Any],
    origins: Sequence[Origin],
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
    others = sorted(name for name in os.listdir(out) if not name.endswith(PARTIAL))
    if others:
        raise DataError(f"{out}: holds something else ({', '.join(others[:3])}); prepare into a folder of its own")
    bad_records = BadRecordLog(on_bad_record)
    for file in empty:
        bad_records.count(BadRecordError(str(file), None, Reason.EMPTY_FILE, "0 bytes"))
    counts = []
    for origin in origins:
        try:
            counts.append(len(open_origin(origin, encoder)))
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
    write_json(written, plan)
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


def _shards(counts: Sequence[int], sizes: Sequence[int], shard_bytes: int) -> Iterator[list[Range]]:
    """The records of all sources in order, cut where about ``shard_bytes`` are together."""
    ranges: list[Range] = []
    room = shard_bytes
    for source, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        start = 0
        while start < count:
            fit = min(count - start, max(1, room * count // max(size, 1)))
            ranges.append(Range(source, start, start + fit))
            start += fit
            room -= max(1, fit * size // count)
            if room <= 0 or start < count:
                yield ranges
                ranges, room = [], shard_bytes
    if ranges:
        yield ranges


def _finish(out: Path, identity: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Join the parts of the index, and write the manifest."""
    num_shards = len(plan["shards"])
    counts: Counter[str] = Counter(plan["bad_records"])
    examples: list[str] = list(plan["bad_examples"])
    documents = []
    for shard in range(num_shards):
        with np.load(out / part_name(shard)) as part:
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
        with appearing(out / f"{name}.npy") as partial:
            joined = np.lib.format.open_memmap(partial, "w+", dtype, (total, *shape))
            start = 0
            for shard in range(num_shards):
                with np.load(out / part_name(shard)) as part:
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
        "shards": [{"file": shard_name(shard), "documents": documents[shard]} for shard in range(num_shards)],
    }
    write_json(out / MANIFEST, manifest)


def _tidy(out: Path) -> None:
    """Remove what only an unfinished preparation needs. The plan goes last: until then, this can be done again."""
    for pattern in (f"*{PARTIAL}", "part-*.npz", _PLAN):
        for file in out.glob(pattern):
            file.unlink(missing_ok=True)
