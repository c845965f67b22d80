"""Text in, batches out: the whole pipeline behind one config.

Files → documents → tokens → a held-out part and the rest → windows → batches. ``build`` does everything up to the windows; what
``train`` and ``validation`` give is then a function of the config and the fingerprint alone.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Literal, final

import ax_config
import numpy as np
from ax_config import field

from ._batches import BatchStream, EvaluationBatches, own_rows
from ._byte_tokenizer import ByteTokenizer
from ._errors import BadRecordError, BadRecordLog, DataError, Reason, Report
from ._files import find_files, standard_library_paths
from ._holdout import check_fraction, cut_in_two, holdout_mask
from ._read import OnProgress, read_documents
from ._remote import File
from ._token_store import TokenStore, Windows
from .protocols import Tokenizer


@final
class TextInput:
    """Tokenised text, split in two, ready to be dealt out.

    Args:
        cfg: What to read and how.
        tokenizer: What makes tokens of the text; bytes unless given. A model shares it, so it is no part of this config.
        on_progress: Told the bytes of files done and to do while the text is read.
        shard_index: Which part of every batch this process gets, of ``shard_count`` equal ones.
        shard_count: How many processes share a batch.

    Raises:
        DataError: The text can't be used as asked; of the kind ``BadRecordError`` when it is one file or record.
    """

    class Config(ax_config.Config["TextInput"]):
        """What to read, and how to deal it out."""

        paths: tuple[str, ...] = field(default=(), help="files and folders; none means the running Python's library")
        text_field: str = field(default="text", help="where the text is in a JSON line or a Parquet row")
        on_bad_record: Literal["error", "skip"] = field(default="error", help="stop at a bad record, or count it")
        seq_length: int = field(default=256, help="tokens in a row")
        batch_size: int = field(default=8, help="rows in a batch, over all processes")
        holdout_fraction: float = field(default=0.05, help="how much to keep for validation")
        seed: int = field(default=0, help="chooses the held-out documents and the order")
        shuffle: bool = field(default=True, help="a new order every epoch; else the order of the files")

        def batch_shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
            """The shapes and dtypes of the arrays of a batch, over all processes; for that nothing need be read."""
            shape = (self.batch_size, self.seq_length)
            return {name: (shape, np.dtype(np.int32)) for name in ("tokens", "targets")}

    def __init__(
        self,
        cfg: Config,
        /,
        *,
        tokenizer: Tokenizer | None = None,
        on_progress: OnProgress | None = None,
        shard_index: int = 0,
        shard_count: int = 1,
    ) -> None:
        # What can be seen to be wrong is, before a long corpus is read.
        check_fraction(cfg.holdout_fraction)
        own_rows(cfg.batch_size, shard_index, shard_count)
        if cfg.seq_length < 1:
            raise DataError(f"seq_length: wanted at least 1, got {cfg.seq_length}")
        self.cfg = cfg
        self.tokenizer: Tokenizer = ByteTokenizer() if tokenizer is None else tokenizer
        """What text became tokens by, for prompts and samples."""
        self._shard_index = shard_index
        self._shard_count = shard_count

        bad_records = BadRecordLog(cfg.on_bad_record)
        paths = _paths(cfg, bad_records)
        documents = read_documents(paths, text_field=cfg.text_field, bad_records=bad_records, on_progress=on_progress)

        first = list(itertools.islice(documents, 2))
        if not first:
            raise DataError(f"no documents in {len(paths)} files; {sum(bad_records.counts.values())} bad records")
        cut = len(first) == 1 and cfg.holdout_fraction > 0
        if cut:
            first = list(cut_in_two(first[0], cfg.holdout_fraction))
        store = TokenStore(self.tokenizer)
        for document in itertools.chain(first, documents):
            store.append(document)

        if cut:
            held_out = np.array([False, True])
        else:
            held_out = holdout_mask(store.digests, fraction=cfg.holdout_fraction, seed=cfg.seed)
        self.train_windows: Windows = store.windows(~held_out, seq_length=cfg.seq_length)
        """What ``train`` deals out."""
        self.validation_windows: Windows | None = (
            store.windows(held_out, seq_length=cfg.seq_length) if held_out.any() else None
        )
        """What ``validation`` deals out; None when nothing is held out."""
        self.report = Report(
            num_documents=1 if cut else len(store),
            num_bytes=store.num_bytes,
            num_tokens=store.num_tokens,
            bad_records=bad_records.counts,
            examples=bad_records.examples,
        )
        """What was read, and what was left out."""

    def train(self) -> BatchStream:
        """A new stream of training batches, at its beginning."""
        return BatchStream(
            self.train_windows,
            batch_size=self.cfg.batch_size,
            seed=self.cfg.seed,
            shuffle=self.cfg.shuffle,
            shard_index=self._shard_index,
            shard_count=self._shard_count,
        )

    def validation(self, *, max_batches: int | None = None) -> EvaluationBatches:
        """The held-out text as batches, to go over as often as wanted. Raises DataError when nothing is held out."""
        if self.validation_windows is None:
            raise DataError("nothing is held out to validate on: holdout_fraction is 0")
        return EvaluationBatches(
            self.validation_windows,
            batch_size=self.cfg.batch_size,
            max_batches=max_batches,
            shard_index=self._shard_index,
            shard_count=self._shard_count,
        )

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Rows of a batch, over all processes, and tokens of a row."""
        return self.cfg.batch_size, self.cfg.seq_length

    @property
    def bytes_per_token(self) -> float:
        """Bytes per target of the held-out text (of the training text when nothing is held out), for bits per byte."""
        return (self.validation_windows or self.train_windows).bytes_per_token

    @property
    def fingerprint(self) -> str:
        """Changes when any token of the text, the split or the order of documents does; not with the batches' settings."""
        digest = hashlib.blake2b(self.train_windows.fingerprint.encode(), digest_size=16)
        if self.validation_windows is not None:
            digest.update(self.validation_windows.fingerprint.encode())
        return digest.hexdigest()


def _paths(cfg: TextInput.Config, bad_records: BadRecordLog) -> tuple[File, ...]:
    if not cfg.paths:
        return tuple(standard_library_paths())
    files = find_files(cfg.paths)
    for path in files.empty:
        bad_records.count(BadRecordError(str(path), None, Reason.EMPTY_FILE, "0 bytes"))
    return files.paths
