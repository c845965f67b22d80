"""Fill-in-the-middle (Bavarian et al. 2022, arXiv:2207.14255): to complete a gap, a model learns from documents that are cut in three.

    PSM    <PRE> prefix <SUF> suffix <MID> middle
    SPM    <PRE> <SUF> suffix <MID> prefix middle        (the paper's form of it, for learning both, §3)

A document is transformed with probability ``rate``, and then put in SPM form with probability ``spm_rate``. It is cut at two
uniform places between tokens (the paper prefers places between characters, for which the text would have to be tokenised anew).
What happens to a document is a function of the seed and its place in the corpus, so the same in every epoch.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import final

import ax_config
import numpy as np
from ax_config import field

from ._errors import DataError
from ._permutation import key_of
from .protocols import TokenDocuments

_MARKS = 3


@final
class FillInTheMiddle:
    """The transform: call it with documents."""

    class Config(ax_config.Config["FillInTheMiddle"]):
        """The marks, how often, and in which form."""

        prefix_id: int = field(help="the token before the prefix, <PRE>")
        middle_id: int = field(help="the token before the middle, <MID>")
        suffix_id: int = field(help="the token before the suffix, <SUF>")
        rate: float = field(default=0.5, help="which share of the documents")
        spm_rate: float = field(default=0.5, help="which share of those in SPM form")
        seed: int = field(default=0, help="of the choice and the cuts")

    def __init__(self, cfg: Config, /) -> None:
        for name, value in (("rate", cfg.rate), ("spm_rate", cfg.spm_rate)):
            if not 0.0 <= value <= 1.0:
                raise DataError(f"{name}: wanted 0 to 1, got {value}")
        if len({cfg.prefix_id, cfg.middle_id, cfg.suffix_id}) < _MARKS:
            raise DataError(f"wanted three different marks, got {cfg.prefix_id}, {cfg.middle_id}, {cfg.suffix_id}")
        self._cfg = cfg

    def __call__(self, documents: TokenDocuments, /) -> RearrangedDocuments:
        """The documents, some of them rearranged."""
        return RearrangedDocuments(documents, self._cfg)


@final
class RearrangedDocuments:
    """Documents, some of them with a gap to fill. Other arrays than ``tokens`` are rearranged with them; marks weigh 1."""

    def __init__(self, documents: TokenDocuments, cfg: FillInTheMiddle.Config) -> None:
        self._documents = documents
        self._cfg = cfg
        self._marks = {"prefix": cfg.prefix_id, "middle": cfg.middle_id, "suffix": cfg.suffix_id}
        draws = _random("fill in the middle", cfg.seed).random((len(documents), 2), np.float32)
        self._rearranged = draws[:, 0] < cfg.rate
        self._spm = draws[:, 1] < cfg.spm_rate
        self.lengths: np.ndarray = np.asarray(documents.lengths) + _MARKS * self._rearranged
        """The tokens of each document, ``[D]`` int64: three more where it is rearranged."""

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        document = self._documents[index]
        if not self._rearranged[index]:
            return document
        length = len(document["tokens"])
        cuts = _random("cuts", self._cfg.seed, index).integers(0, length, 2, endpoint=True)
        first, second = sorted(cuts.tolist())
        return {
            name: self._arranged(name, values, first, second, spm=self._spm[index]) for name, values in document.items()
        }

    def origin(self, index: int, /) -> str:
        """Where document ``index`` came from."""
        return self._documents.origin(index)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Changes with the documents and every setting."""
        told = f"{self._documents.fingerprint}\0{ax_config.dumps(self._cfg)}"
        return hashlib.blake2b(told.encode(), digest_size=16, person=b"fim").hexdigest()

    def _arranged(self, name: str, values: np.ndarray, first: int, second: int, *, spm: bool) -> np.ndarray:
        prefix, middle, suffix = values[:first], values[first:second], values[second:]
        marks = self._marks if name == "tokens" else dict.fromkeys(self._marks, 1)
        pre, mid, suf = (np.array([marks[each]], values.dtype) for each in ("prefix", "middle", "suffix"))
        order = (pre, suf, suffix, mid, prefix, middle) if spm else (pre, prefix, suf, suffix, mid, middle)
        return np.concatenate(order)


def _random(*what: str | int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key_of(*what)))
