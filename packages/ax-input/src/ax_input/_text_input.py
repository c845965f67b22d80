"""Text in, batches out: the whole pipeline behind one flat config.

Files → documents → tokens → a held-out part and the rest → rows → batches. It is a ``Mixture`` of one ``TextCorpus``, called ``text``.
"""

from __future__ import annotations

from typing import Literal, final

import ax_config
import numpy as np
from ax_config import field

from ._batches import BatchStream, EvaluationBatches
from ._errors import Report
from ._ledger import Ledger
from ._mixture import Mixture
from ._packing import Packing
from ._read import OnProgress
from ._read_ahead import ReadAhead
from ._rows import Rows
from ._text_corpus import TextCorpus
from .protocols import Tokenizer

_SOURCE = "text"


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
        packing: Packing.Config = field(default_factory=Packing.Config, help="how documents are laid into rows")
        holdout_fraction: float = field(default=0.05, help="how much to keep for validation")
        seed: int = field(default=0, help="chooses the held-out documents and the order")
        shuffle: bool = field(default=True, help="a new order every epoch; else the order of the files")
        skip: tuple[tuple[int, int], ...] = field(default=(), help="batches to leave out: (begin, end) each")
        read_ahead: ReadAhead.Config = field(default_factory=ReadAhead.Config, help="how batches are read")

        def batch_shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
            """The shapes and dtypes of the arrays of a batch, over all processes; for that nothing need be read."""
            return _mixture(self).batch_shapes()

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
        self.cfg = cfg
        self._mixture = _mixture(cfg).build(
            tokenizer=tokenizer, on_progress=on_progress, shard_index=shard_index, shard_count=shard_count
        )
        self.tokenizer: Tokenizer = self._mixture.tokenizer
        """What text became tokens by, for prompts and samples."""

    def train(self) -> BatchStream:
        """A new stream of training batches, at its beginning."""
        return self._mixture.train()

    def validation(self, *, max_batches: int | None = None) -> EvaluationBatches:
        """The held-out text as batches, to go over as often as wanted. Raises DataError when nothing is held out."""
        return self._mixture.validation(max_batches=max_batches)

    @property
    def ledger(self) -> Ledger:
        """What is in which batch of ``train``."""
        return self._mixture.ledger

    @property
    def train_rows(self) -> Rows:
        """What ``train`` deals out."""
        return self._mixture.train_rows[_SOURCE]

    @property
    def validation_rows(self) -> Rows | None:
        """What ``validation`` deals out; None when nothing is held out."""
        return self._mixture.validation_rows

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Rows of a batch, over all processes, and tokens of a row."""
        return self._mixture.batch_shape

    @property
    def bytes_per_token(self) -> float:
        """Bytes per target of the held-out text (of the training text when nothing is held out), for bits per byte."""
        return self._mixture.bytes_per_token

    @property
    def fingerprint(self) -> str:
        """Changes when any token of the text, the split or the order of documents does; not with the batches' settings."""
        return self._mixture.fingerprint

    @property
    def report(self) -> Report:
        """What was read, and what was left out."""
        report = self._mixture.report.sources[_SOURCE]
        assert isinstance(report, Report)
        return report


def _mixture(cfg: TextInput.Config) -> Mixture.Config:
    corpus = TextCorpus.Config(
        paths=cfg.paths,
        text_field=cfg.text_field,
        on_bad_record=cfg.on_bad_record,
        holdout_fraction=cfg.holdout_fraction,
        seed=cfg.seed,
    )
    return Mixture.Config(
        sources={_SOURCE: corpus},
        seq_length=cfg.seq_length,
        batch_size=cfg.batch_size,
        packing=cfg.packing,
        seed=cfg.seed,
        shuffle=cfg.shuffle,
        skip=cfg.skip,
        read_ahead=cfg.read_ahead,
    )
