"""Text as a corpus: files → documents → tokens → a held-out part and the rest, in memory."""

from __future__ import annotations

import itertools
from typing import Literal, final

import ax_config
import numpy as np
from ax_config import field

from ._byte_tokenizer import ByteTokenizer
from ._errors import BadRecordError, BadRecordLog, DataError, Reason, Report
from ._files import find_files, standard_library_paths
from ._holdout import check_fraction, cut_in_two, holdout_mask
from ._read import OnProgress, read_documents
from ._remote import File
from ._token_store import MemoryDocuments, TokenStore
from .protocols import Tokenizer


@final
class TextCorpus:
    """Tokenised text, split in two. Fits ``Corpus``.

    Args:
        cfg: What to read, and how much of it to hold out.
        tokenizer: What makes tokens of the text; bytes unless given.
        on_progress: Told the bytes of files done and to do while the text is read.

    Raises:
        DataError: The text can't be used as asked; of the kind ``BadRecordError`` when it is one file or record.
    """

    class Config(ax_config.Config["TextCorpus"]):
        """What to read."""

        paths: tuple[str, ...] = field(default=(), help="files and folders; none means the running Python's library")
        text_field: str = field(default="text", help="where the text is in a JSON line or a Parquet row")
        on_bad_record: Literal["error", "skip"] = field(default="error", help="stop at a bad record, or count it")
        holdout_fraction: float = field(default=0.05, help="how much to keep for validation")
        seed: int = field(default=0, help="chooses the held-out documents")

    def __init__(
        self, cfg: Config, /, *, tokenizer: Tokenizer | None = None, on_progress: OnProgress | None = None
    ) -> None:
        check_fraction(cfg.holdout_fraction)  # before a long corpus is read
        bad_records = BadRecordLog(cfg.on_bad_record)
        paths = _paths(cfg, bad_records)
        documents = read_documents(paths, text_field=cfg.text_field, bad_records=bad_records, on_progress=on_progress)

        first = list(itertools.islice(documents, 2))
        if not first:
            raise DataError(f"no documents in {len(paths)} files; {sum(bad_records.counts.values())} bad records")
        cut = len(first) == 1 and cfg.holdout_fraction > 0
        if cut:
            first = list(cut_in_two(first[0], cfg.holdout_fraction))
        store = TokenStore(ByteTokenizer() if tokenizer is None else tokenizer)
        for document in itertools.chain(first, documents):
            store.append(document)

        if cut:
            held_out = np.array([False, True])
        else:
            held_out = holdout_mask(store.digests, fraction=cfg.holdout_fraction, seed=cfg.seed)
        self.train: MemoryDocuments = store.documents(~held_out)
        """What to train on."""
        self.validation: MemoryDocuments | None = store.documents(held_out) if held_out.any() else None
        """What is held out; None when nothing is."""
        self.report = Report(
            num_documents=1 if cut else len(store),
            num_bytes=store.num_bytes,
            num_tokens=store.num_tokens,
            bad_records=bad_records.counts,
            examples=bad_records.examples,
        )
        """What was read, and what was left out."""

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per token or end mark of what is held out (of what to train on when nothing is)."""
        documents = self.validation or self.train
        return documents.num_bytes / int((documents.lengths + 1).sum())


def _paths(cfg: TextCorpus.Config, bad_records: BadRecordLog) -> tuple[File, ...]:
    if not cfg.paths:
        return tuple(standard_library_paths())
    files = find_files(cfg.paths)
    for path in files.empty:
        bad_records.count(BadRecordError(str(path), None, Reason.EMPTY_FILE, "0 bytes"))
    return files.paths
