"""Held-out data beside that of the training data, evaluated on a schedule of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import final

import ax_config
from ax_config import Buildable, field
from ax_input.protocols import Tokenizer
from ax_trainer import Evaluator

from .protocols import Pipeline


@final
class Evaluation:
    """The held-out part of some data.

    Args:
        cfg: Which data, and when.
        tokenizer: The model's.
        shard: ``shard_index`` and ``shard_count`` in one of several processes.
    """

    class Config(ax_config.Config["Evaluation"]):
        """Which data, and when."""

        input: Buildable[Pipeline]
        max_batches: int | None = field(default=None, help="how many to evaluate on; None means all")
        every: int | None = field(
            default=None, help="at multiples of this step, and at the end; None means as the trainer"
        )
        at_start: bool = field(default=False, help="before the first step, too")
        averaged: bool = field(default=False, help="of the averaged parameters, not those of the last step")

    def __init__(self, cfg: Config, /, *, tokenizer: Tokenizer, **shard: int) -> None:
        self._cfg = cfg
        self._data = cfg.input.build(tokenizer=tokenizer, **shard)

    def evaluator(self) -> Evaluator:
        """As a trainer takes it."""
        cfg, data = self._cfg, self._data
        return Evaluator(
            lambda: data.validation(max_batches=cfg.max_batches),
            every=cfg.every,
            at_start=cfg.at_start,
            averaged=cfg.averaged,
            derive={"bits_per_byte": bits_per_byte(data)},
        )


def bits_per_byte(data: Pipeline) -> Callable[[Mapping[str, float]], float]:
    """A loss, in nats per target, as bits per byte of the text that this data is made of."""
    bytes_per_token = data.bytes_per_token
    return lambda metrics: metrics["loss"] / math.log(2) / bytes_per_token
