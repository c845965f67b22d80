"""How fast tokenised text becomes batches, a core: ours, bare Grain, Hugging Face's datasets and torch's DataLoader, by turns in one process.

The work is the same for all: the source code of Python's standard library, tokenised to bytes and kept on disk as documents, is dealt out in
rows of 2,048 tokens and their targets, 8 in a batch. Rows are cut out of the documents laid end to end, and shuffled over the whole corpus.

* ours: ``prepare_corpus``'s files by ``Mixture``.
* grain: the same files, ``ArrayRecordDataSource``, ``shuffle``, ``ConcatThenSplitIterDataset``, ``batch``, one thread. That is less work: it shuffles
  documents, and the rows of one stay beside each other.
* datasets: the documents as ``save_to_disk`` keeps them, in numpy format; a row is made of what its documents give.
* torch: the documents as ArrayRecords, a row made in the same way; ``DataLoader`` with ``shuffle`` and its own collation, no workers.
* … rows: rows that were cut in advance, for one length, kept as records and shuffled: half of the work, shown to compare with.

    python benchmarks/input.py                       100 batches each, ten times by turns
    python benchmarks/input.py --only ours grain     without what isn't installed
    python benchmarks/input.py --batches 1000000     and whether our memory stays flat over so many

The process is kept on one core, and time is what it takes of a core (CPU seconds, of all threads), the best of the turns: a busy machine
disturbs that least. It ends with 1 when ours is below 0.9 of Grain, or not above the others at the same work, or memory grows.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grain  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from ax_input import (
    ByteTokenizer,
    Mixture,
    PreparedCorpus,
    PreparedText,
    TextEncoder,
    prepare_corpus,
    standard_library_paths,
)

LENGTH = 2_048
ROWS = 8
TOKENS = LENGTH * ROWS
EOS = ByteTokenizer.eos_id
LEAST_OF_GRAIN = 0.9
MOST_GROWTH = 8 * 2**20

Batches = Iterator[Mapping[str, Any]]


def ours(folder: Path) -> Batches:
    """Ours."""
    source = PreparedText.Config(folder=str(folder), holdout_fraction=0.0)
    return Mixture.Config(sources={"library": source}, seq_length=LENGTH, batch_size=ROWS).build().train()


def grain_rows(folder: Path) -> Batches:
    """Bare Grain, from rows."""
    rows = grain.MapDataset.source(row_records(folder)).shuffle(seed=0).repeat().map(parsed)
    batches = rows.batch(ROWS).to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
    return iter(batches.map(shifted))


def grain_documents(folder: Path) -> Batches:
    """Bare Grain, from documents."""
    documents = grain.MapDataset.source(records(folder)).shuffle(seed=0).repeat().map(with_end)
    reading = documents.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=16))
    packed = grain.experimental.ConcatThenSplitIterDataset(
        reading, length_struct={"tokens": LENGTH + 1}, meta_features=[]
    )
    return iter(packed.batch(ROWS, drop_remainder=True).map(lambda batch: shifted(batch["tokens"])))


def with_end(record: bytes) -> dict[str, np.ndarray]:
    """A document and its end mark."""
    return {"tokens": np.append(parsed(record), np.int32(EOS))}


def parsed(record: bytes) -> np.ndarray:
    """The tokens in a record."""
    return np.frombuffer(record, "<u2").astype(np.int32)


class CutRows:
    """Rows cut out of documents when they are asked for, given what reads a document."""

    def __init__(self, lengths: np.ndarray, read: Callable[[int], np.ndarray]) -> None:
        self._read = read
        self._ends = np.cumsum(lengths + 1)  # each document is followed by an end mark
        self._begins = self._ends - lengths - 1

    def __len__(self) -> int:
        return (int(self._ends[-1]) - 1) // LENGTH

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        row = np.full(LENGTH + 1, EOS, np.int32)
        begin = index * LENGTH
        document = int(np.searchsorted(self._ends, begin, side="right"))
        place = 0
        while place <= LENGTH:
            first = begin + place - int(self._begins[document])
            part = self._read(document)[first : first + LENGTH + 1 - place]
            row[place : place + len(part)] = part
            place = int(self._ends[document]) - begin
            document += 1
        return {"tokens": row[:-1], "targets": row[1:]}


def kept_by_datasets(folder: Path, name: str, values: Iterator[np.ndarray]) -> Any:
    """Documents or rows in its own files."""
    datasets: Any = importlib.import_module("datasets")
    datasets.disable_progress_bars()
    kept = str(folder.with_name(name))
    datasets.Dataset.from_dict({"tokens": list(values)}).save_to_disk(kept)
    return datasets.load_from_disk(kept).with_format("numpy")


def datasets_documents(folder: Path) -> Batches:
    """By ``datasets``, from documents."""
    corpus = PreparedCorpus(folder)
    dataset = kept_by_datasets(folder, "documents", (corpus[i]["tokens"].astype(np.uint16) for i in range(len(corpus))))
    rows = CutRows(corpus.lengths, lambda document: np.asarray(dataset[document]["tokens"]))
    for epoch in range(2**31):
        order = np.random.default_rng(epoch).permutation(len(rows)).tolist()
        for start in range(0, len(order) - ROWS + 1, ROWS):
            batch = [rows[index] for index in order[start : start + ROWS]]
            yield {name: np.stack([row[name] for row in batch]) for name in batch[0]}


def datasets_rows(folder: Path) -> Batches:
    """By ``datasets``, from rows."""
    dataset = kept_by_datasets(folder, "rows", rows_of(folder))
    for epoch in range(2**31):
        for batch in dataset.shuffle(seed=epoch, keep_in_memory=True).iter(ROWS, drop_last_batch=True):
            yield shifted(batch["tokens"].astype(np.int32))


class ParsedRows:
    """Rows that are records."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        row = parsed(self._source[index])
        return {"tokens": row[:-1], "targets": row[1:]}


def torch_documents(folder: Path) -> Batches:
    """By torch, from documents."""
    source = records(folder)
    return loaded(CutRows(PreparedCorpus(folder).lengths, lambda document: np.frombuffer(source[document], "<u2")))


def torch_rows(folder: Path) -> Batches:
    """By torch, from rows."""
    return loaded(ParsedRows(row_records(folder)))


def loaded(rows: CutRows | ParsedRows) -> Batches:
    """By its ``DataLoader``, which takes anything with a length and an index."""
    data: Any = importlib.import_module("torch.utils.data")
    loader = data.DataLoader(rows, batch_size=ROWS, shuffle=True, drop_last=True, num_workers=0)
    while True:
        yield from loader


def rows_of(folder: Path) -> Iterator[np.ndarray]:
    """The documents end to end, cut into rows of one token more than ``LENGTH``, which the next row begins with."""
    corpus = PreparedCorpus(folder)
    end = np.array([EOS], np.uint16)
    parts = [part for i in range(len(corpus)) for part in (corpus[i]["tokens"].astype(np.uint16), end)]
    stream = np.concatenate([end, *parts])
    for start in range(0, len(stream) - LENGTH, LENGTH):
        yield stream[start : start + LENGTH + 1]


def row_records(folder: Path) -> Any:
    """The rows as ArrayRecords, written once."""
    file = folder.with_name("rows.arrayrecord")
    if not file.exists():
        module: Any = importlib.import_module("array_record.python.array_record_module")
        writer = module.ArrayRecordWriter(str(file), "group_size:1,uncompressed")
        for row in rows_of(folder):
            writer.write(row.astype("<u2").tobytes())
        writer.close()
    return grain.sources.ArrayRecordDataSource([str(file)])


def shifted(rows: np.ndarray) -> Mapping[str, np.ndarray]:
    """Tokens, and the tokens that follow them."""
    return {"tokens": rows[:, :-1], "targets": rows[:, 1:]}


def records(folder: Path) -> Any:
    """The bytes of the shards, by Grain."""
    return grain.sources.ArrayRecordDataSource([str(path) for path in sorted(folder.glob("*.arrayrecord"))])


CONTENDERS: dict[str, Callable[[Path], Batches]] = {
    "ours": ours,
    "grain": grain_documents,
    "datasets": datasets_documents,
    "torch": torch_documents,
    "grain-rows": grain_rows,
    "datasets-rows": datasets_rows,
    "torch-rows": torch_rows,
}


def measure(batches: Batches, number: int) -> float:
    """CPU seconds for so many batches."""
    begun = time.process_time()
    for _ in range(number):
        next(batches)
    return time.process_time() - begun


def check(batch: Mapping[str, Any], name: str) -> None:
    """It is what was asked for."""
    tokens, targets = np.asarray(batch["tokens"]), np.asarray(batch["targets"])
    assert tokens.shape == targets.shape == (ROWS, LENGTH), f"{name}: {tokens.shape}, {targets.shape}"
    assert tokens.dtype == targets.dtype == np.int32, f"{name}: {tokens.dtype}, {targets.dtype}"
    assert (tokens[:, 1:] == targets[:, :-1]).mean() > 0.99, f"{name}: targets don't follow"


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def flat(folder: Path, number: int) -> bool:
    """Take so many batches of ours, and say what that does to memory."""
    batches = ours(folder)
    warm = min(2_000, number // 10)
    measure(batches, warm)
    before = resident()
    print(f"\nmemory after {warm:,} batches: {before / 2**20:,.1f} MiB")
    for done in range(1, 5):
        measure(batches, (number - warm) // 4)
        print(f"after {warm + done * ((number - warm) // 4):,}: {(resident() - before) / 2**20:+,.1f} MiB")
    return resident() - before < MOST_GROWTH


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--batches", type=int, default=0, help="how many to watch our memory over")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "prepared")
        tokenizer = ByteTokenizer()
        encoder = TextEncoder.Config().build(tokenizer=tokenizer)
        corpus = prepare_corpus(
            standard_library_paths(), folder, tokenizer=tokenizer, encoder=encoder, on_bad_record="skip"
        )
        print(corpus.report)
        streams = {name: CONTENDERS[name](folder) for name in options.only}
        for name, stream in streams.items():
            check(next(stream), name)
            measure(stream, 20)
        best = dict.fromkeys(streams, float("inf"))
        for _ in range(options.turns):
            for name, stream in streams.items():
                best[name] = min(best[name], measure(stream, 100) / 100)
        print("\n| | M tokens a CPU second | ms a batch | ours / it |\n|---|--:|--:|--:|")
        for name, seconds in best.items():
            ratio = f"{seconds / best['ours']:.2f}" if "ours" in best else ""
            print(f"| {name} | {TOKENS / seconds / 1e6:.1f} | {seconds * 1e3:.3f} | {ratio} |")
        bounds = {"grain": LEAST_OF_GRAIN, "grain-rows": LEAST_OF_GRAIN, "datasets": 1.0, "torch": 1.0}
        good = all(best[name] / best["ours"] >= bounds[name] for name in best if name in bounds and "ours" in best)
        if options.batches:
            good &= flat(folder, options.batches)
    return not good


if __name__ == "__main__":
    sys.exit(main())
