"""Several corpora in, batches out: packed, mixed by weights that may change on the way, and dealt out by the ledger."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import ax_config
import numpy as np
from ax_config import Buildable, field

from ._batches import BatchStream, EvaluationBatches, own_rows
from ._byte_tokenizer import ByteTokenizer
from ._errors import DataError
from ._ledger import DEFAULT_BLOCK_ROWS, Ledger
from ._mixing import Phase
from ._packing import Packing
from ._read import OnProgress
from ._read_ahead import ReadAhead
from ._rows import Rows
from ._subset import Concatenated
from .protocols import Corpus, TokenDocuments, Tokenizer


@final
class Mixture:
    """Corpora that are ready to be dealt out.

    Args:
        cfg: What to read, how to mix it, and how to deal it out.
        tokenizer: What makes tokens of text; bytes unless given. A model shares it, so it is no part of this config.
        on_progress: Told how far a corpus is read, while it is, one after another.
        shard_index: Which part of every batch this process gets, of ``shard_count`` equal ones.
        shard_count: How many processes share a batch.

    Raises:
        DataError: The data can't be used as asked.
    """

    class Config(ax_config.Config["Mixture"]):
        """What to mix, and how to deal it out."""

        sources: Mapping[str, Buildable[Corpus]]
        phases: tuple[Buildable[Phase], ...] = field(
            default=(), help="shares of the sources, and from which batch on; none means by their sizes"
        )
        block_rows: int = field(default=DEFAULT_BLOCK_ROWS, help="how many rows hold these shares exactly")
        seq_length: int = field(default=256, help="tokens in a row")
        batch_size: int = field(default=8, help="rows in a batch, over all processes")
        packing: Packing.Config = field(default_factory=Packing.Config, help="how documents are laid into rows")
        seed: int = field(default=0, help="chooses the order")
        shuffle: bool = field(default=True, help="a new order every epoch; else that of the documents")
        skip: tuple[tuple[int, int], ...] = field(default=(), help="batches to leave out: (begin, end) each")
        read_ahead: ReadAhead.Config = field(default_factory=ReadAhead.Config, help="how batches are read")
        cache: str | None = field(default=None, help="a folder to keep the packing of large corpora in")

        def batch_shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
            """The shapes and dtypes of the arrays of a batch, over all processes; for that nothing need be read."""
            shape = (self.batch_size, self.seq_length)
            return {name: (shape, np.dtype(np.int32)) for name in self.packing.arrays()}

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
        own_rows(cfg.batch_size, shard_index, shard_count)
        if cfg.seq_length < 1:
            raise DataError(f"seq_length: wanted at least 1, got {cfg.seq_length}")
        self.cfg = cfg
        self.tokenizer: Tokenizer = ByteTokenizer() if tokenizer is None else tokenizer
        """What text became tokens by, for prompts and samples."""
        self._shard_index, self._shard_count = shard_index, shard_count
        self._packing = cfg.packing.build()
        self._read_ahead = cfg.read_ahead.build()
        self._phases = [phase.build() for phase in cfg.phases]
        self._corpora = {
            name: source.build(tokenizer=self.tokenizer, on_progress=on_progress)
            for name, source in cfg.sources.items()
        }

    def train(self) -> BatchStream:
        """A new stream of training batches, at its beginning."""
        return BatchStream(
            self.ledger, read_ahead=self._read_ahead, shard_index=self._shard_index, shard_count=self._shard_count
        )

    def validation(self, *, max_batches: int | None = None) -> EvaluationBatches:
        """The held-out text as batches, to go over as often as wanted. Raises DataError when nothing is held out."""
        if self.validation_rows is None:
            raise DataError("nothing is held out to validate on: holdout_fraction is 0")
        return EvaluationBatches(
            self.validation_rows,
            batch_size=self.cfg.batch_size,
            max_batches=max_batches,
            shard_index=self._shard_index,
            shard_count=self._shard_count,
        )

    @functools.cached_property
    def ledger(self) -> Ledger:
        """What is in which batch of ``train``."""
        cfg = self.cfg
        return Ledger(
            self.train_rows,
            batch_size=cfg.batch_size,
            seed=cfg.seed,
            shuffle=cfg.shuffle,
            phases=self._phases,
            block_rows=cfg.block_rows,
            skip=cfg.skip,
        )

    @functools.cached_property
    def train_rows(self) -> Mapping[str, Rows]:
        """The rows of each source that ``train`` deals out."""
        return {name: self._rows(corpus.train) for name, corpus in self._corpora.items()}

    @functools.cached_property
    def validation_rows(self) -> Rows | None:
        """The rows of what is held out, of all sources together; None when nothing is."""
        held_out = [corpus.validation for corpus in self._corpora.values() if corpus.validation is not None]
        return self._rows(Concatenated(*held_out) if len(held_out) > 1 else held_out[0]) if held_out else None

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Rows of a batch, over all processes, and tokens of a row."""
        return self.cfg.batch_size, self.cfg.seq_length

    @property
    def bytes_per_token(self) -> float:
        """Bytes per target of the held-out text (of the training text when nothing is held out), for bits per byte."""
        validates = any(corpus.validation is not None for corpus in self._corpora.values())
        measured = {name: corpus.validation if validates else corpus.train for name, corpus in self._corpora.items()}
        places = {name: len(part) + int(part.lengths.sum()) for name, part in measured.items() if part is not None}
        num_bytes = sum(self._corpora[name].bytes_per_token * count for name, count in places.items())
        return num_bytes / sum(places.values())

    @property
    def fingerprint(self) -> str:
        """Changes when any token of the text, the split or the order of documents does; not with the batches' settings."""
        digest = hashlib.blake2b(digest_size=16)
        for name, corpus in sorted(self._corpora.items()):
            held_out = "" if corpus.validation is None else corpus.validation.fingerprint
            digest.update(f"{name}\0{corpus.train.fingerprint}\0{held_out}\0".encode())
        return digest.hexdigest()

    @property
    def report(self) -> MixtureReport:
        """What was read, and what was left out."""
        return MixtureReport({name: corpus.report for name, corpus in self._corpora.items()})

    def _rows(self, documents: TokenDocuments) -> Rows:
        cfg = self.cfg
        cache = None if cfg.cache is None else Path(cfg.cache)
        return Rows(
            documents,
            packing=self._packing,
            seq_length=cfg.seq_length,
            eos_id=self.tokenizer.eos_id,
            seed=cfg.seed,
            cache=cache,
        )


@dataclass(frozen=True)
class MixtureReport:
    """The reports of a mixture's sources."""

    sources: Mapping[str, object]

    def __str__(self) -> str:
        """A line for each."""
        return "\n".join(f"{name}: {report}" for name, report in self.sources.items())
