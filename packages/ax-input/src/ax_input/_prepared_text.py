"""A prepared corpus to train on: a part held out, the rest transformed."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import ax_config
import numpy as np
from ax_config import Buildable, field

from ._byte_tokenizer import ByteTokenizer
from ._errors import Report
from ._holdout import check_fraction, holdout_mask
from ._prepared_corpus import PreparedCorpus
from ._read import OnProgress
from ._subset import Subset
from .protocols import TokenDocuments, Tokenizer

Transform = Callable[[TokenDocuments], TokenDocuments]
"""Makes other documents of documents: ``by_length``, ``where``, ``subsample``, ``FillInTheMiddle``, by ``partial_for``."""


@final
class PreparedText:
    """What ``prepare_corpus`` made, split in two by content. Fits ``Corpus``.

    Args:
        cfg: Where it is, how much of it to hold out, and what to make of the rest.
        tokenizer: What the model reads with; refused unless it does what the corpus was prepared with. Bytes unless given.
        on_progress: Told that nothing is left to read.

    Raises:
        DataError: There is no such corpus, or it can't be used as asked.
    """

    class Config(ax_config.Config["PreparedText"]):
        """Which corpus, and how it is used."""

        folder: str = field(help="what ax data prepare made")
        holdout_fraction: float = field(default=0.05, help="how much to keep for validation, as it is")
        seed: int = field(default=0, help="chooses the held-out documents")
        transforms: tuple[Buildable[Transform], ...] = field(
            default=(), help="what is done with the others, one after another"
        )

    def __init__(
        self, cfg: Config, /, *, tokenizer: Tokenizer | None = None, on_progress: OnProgress | None = None
    ) -> None:
        check_fraction(cfg.holdout_fraction)
        corpus = PreparedCorpus(cfg.folder)
        corpus.check_tokenizer(ByteTokenizer() if tokenizer is None else tokenizer)
        digests = [row.tobytes() for row in np.asarray(corpus.digests)] if cfg.holdout_fraction else []
        held_out = (
            holdout_mask(digests, fraction=cfg.holdout_fraction, seed=cfg.seed)
            if digests
            else np.zeros(len(corpus), np.bool_)
        )
        train: TokenDocuments = Subset(corpus, np.flatnonzero(~held_out)) if held_out.any() else corpus
        for transform in cfg.transforms:
            train = transform.build()(train)
        self.train: TokenDocuments = train
        """What to train on."""
        self.validation: TokenDocuments | None = Subset(corpus, np.flatnonzero(held_out)) if held_out.any() else None
        """What is held out; None when nothing is."""
        self.report: Report = corpus.report
        """What was read, and what was left out."""
        measured = held_out if held_out.any() else ~held_out
        self.bytes_per_token: float = int(corpus.num_bytes[measured].sum()) / int((corpus.lengths[measured] + 1).sum())
        """Bytes of text per token or end mark of what is held out (of everything when nothing is)."""
        if on_progress is not None:
            size = corpus.report.num_bytes
            on_progress(size, size)
