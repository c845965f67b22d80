"""Which source each row comes from: exact quotas, in phases, computed for any batch directly.

Rows are counted through batches: batch ``s`` of ``B`` rows is rows ``s · B`` to ``s · B + B``. In a *phase*, they come in blocks of
``block_rows``. A block holds a fixed number of rows of each source, the weights rounded by largest remainders, in an order of its
own, permuted by a key. So after any whole block the shares are exact, between them they are off by less than a block, and how
many rows of a source came before any row is a sum with as many terms as there are phases.

A phase begins at a batch, with a block of its own, and what came before doesn't depend on it: a curriculum, or a mixture that
is changed in the middle of a run, is another phase.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import final

import ax_config
import numpy as np
from ax_config import field

from ._errors import DataError
from ._permutation import key_of, permute


@final
class Phase:
    """From batch ``begin`` on, rows come from the sources in proportion to ``weights``; one that isn't named gives none."""

    class Config(ax_config.Config["Phase"]):
        """When it begins, and how much of what."""

        weights: Mapping[str, float]
        begin: int = field(default=0, help="the first batch of this phase, counted from 0")

    def __init__(self, cfg: Config, /) -> None:
        self.begin = cfg.begin
        self.weights = dict(cfg.weights)


@final
class Mixing:
    """The source of each row of each batch.

    Args:
        sources: Their names. The order doesn't matter.
        phases: Beginning with one at batch 0.
        batch_size: Rows in a batch, over all processes.
        block_rows: How many rows hold the weights' shares exactly.
        seed: Of the order within blocks.

    Raises:
        DataError: Phases don't begin at 0 or not in order, name a source that isn't there, or have a weight that is negative, or so
            small that it is less than half a row in a block.
    """

    def __init__(
        self, sources: Sequence[str], phases: Sequence[Phase], *, batch_size: int, block_rows: int, seed: int
    ) -> None:
        self.sources = tuple(sorted(sources))
        self._batch_size = batch_size
        self._block_rows = block_rows
        self._seed = seed
        if block_rows < 1:
            raise DataError(f"block_rows: wanted at least 1, got {block_rows}")
        self._begins = [phase.begin for phase in phases]
        if self._begins[:1] != [0] or self._begins != sorted(set(self._begins)):
            raise DataError(
                f"phases: wanted the first to begin at batch 0 and each other later, got begins {self._begins}"
            )
        self._quotas_S = [self._quotas(phase) for phase in phases]
        self._last_block: tuple[tuple[int, int], np.ndarray, np.ndarray] | None = None
        self._before_S = [np.zeros(len(self.sources), np.int64)]
        """How many rows of each source come before each phase."""
        for i, (begin, end) in enumerate(zip(self._begins, self._begins[1:], strict=False)):
            self._before_S.append(self._before_S[i] + self._counts(i, (end - begin) * batch_size))

    def rows(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Of each row of ``batch``: its source (as an index into ``sources``), and how many rows of it came before. Both ``[B]``."""
        phase = self._phase(batch)
        begin = (batch - self._begins[phase]) * self._batch_size
        end = begin + self._batch_size
        sources_B, nth_B = [], []
        for block in range(begin // self._block_rows, -(-end // self._block_rows)):
            start = block * self._block_rows
            part = slice(max(begin - start, 0), end - start)
            order, rank = self._block(phase, block)
            sources = order[part]
            sources_B.append(sources)
            nth_B.append(self._before_S[phase][sources] + block * self._quotas_S[phase][sources] + rank[part])
        return np.concatenate(sources_B), np.concatenate(nth_B)

    def counts(self, batch: int) -> np.ndarray:
        """How many rows of each source are in the batches before ``batch``, ``[S]``."""
        phase = self._phase(batch)
        rows = (batch - self._begins[phase]) * self._batch_size
        counts: np.ndarray = self._before_S[phase] + self._counts(phase, rows)
        return counts

    def identity(self, batch: int) -> dict[str, object]:
        """All that the batches before ``batch`` depend on here, and of batch 0 the phase: by its beginning, the rows of a block."""
        return {
            str(begin): {
                "block_rows": self._block_rows,
                **{name: int(quota) for name, quota in zip(self.sources, quotas, strict=True) if quota},
            }
            for begin, quotas in zip(self._begins, self._quotas_S, strict=True)
            if begin < max(batch, 1)
        }

    def used(self, batch: int) -> list[str]:
        """The sources of the phases that began before ``batch``, and of the first."""
        phases = zip(self._begins, self._quotas_S, strict=True)
        quotas = np.array([quotas for begin, quotas in phases if begin < max(batch, 1)])
        return [self.sources[i] for i in np.flatnonzero(quotas.any(axis=0)).tolist()]

    def _phase(self, batch: int) -> int:
        return bisect.bisect_right(self._begins, batch) - 1

    def _counts(self, phase: int, rows: int) -> np.ndarray:
        """How many of the first ``rows`` rows of a phase are of each source."""
        blocks, rest = divmod(rows, self._block_rows)
        counts: np.ndarray = blocks * self._quotas_S[phase]
        if rest:
            order, _ = self._block(phase, blocks)
            counts = counts + np.bincount(order[:rest], minlength=len(self.sources))
        return counts

    def _block(self, phase: int, block: int) -> tuple[np.ndarray, np.ndarray]:
        """Of each row of a block: its source, and how many rows of that came before in the block."""
        last = self._last_block
        if last is not None and last[0] == (phase, block):
            return last[1], last[2]
        key = key_of("mixing", self._seed, self._begins[phase], block)
        slots = permute(np.arange(self._block_rows), size=self._block_rows, key=key)
        ends = np.cumsum(self._quotas_S[phase])
        sources = np.searchsorted(ends, slots, side="right")
        by_source = np.argsort(sources, kind="stable")
        rank = np.empty_like(by_source)
        rank[by_source] = np.arange(self._block_rows) - (ends - self._quotas_S[phase])[sources[by_source]]
        self._last_block = (phase, block), sources, rank
        return sources, rank

    def _quotas(self, phase: Phase) -> np.ndarray:
        """The rows of each source in a block, ``[S]``: the weights' shares, rounded by largest remainders."""
        where = f"the phase from batch {phase.begin}"
        unknown = sorted(phase.weights.keys() - set(self.sources))
        if unknown:
            raise DataError(f"{where}: no source is called {', '.join(unknown)}; there are: {', '.join(self.sources)}")
        weights = [Fraction(phase.weights.get(name, 0)) for name in self.sources]
        total = sum(weights)
        if min(weights) < 0 or total == 0:
            raise DataError(f"{where}: wanted weights of at least 0, one of them more, got {phase.weights}")
        shares = [weight * self._block_rows / total for weight in weights]
        quotas = [int(share) for share in shares]
        by_remainder = sorted(range(len(shares)), key=lambda i: quotas[i] - shares[i])
        for i in by_remainder[: self._block_rows - sum(quotas)]:
            quotas[i] += 1
        for name, weight, quota in zip(self.sources, weights, quotas, strict=True):
            if weight and not quota:
                raise DataError(
                    f"{where}: {name} has {float(weight / total):.2g} of the weight, which is no row in a block of "
                    f"{self._block_rows}: raise block_rows, or leave the source out"
                )
        return np.array(quotas, np.int64)


def phases_by_size(sizes: Mapping[str, int]) -> Sequence[Phase]:
    """One phase, in proportion to the number of rows of each source."""
    return [Phase.Config(weights={name: float(size) for name, size in sizes.items()}).build()]
