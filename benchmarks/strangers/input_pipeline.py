"""Another input pipeline: Python and numpy alone. It holds all tokens in memory and deals out windows of them.

Which windows batch ``s`` has is a function of the config and ``s``, so the position of a stream is that one number.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import ax_config
import numpy as np
from ax_config import Config, replace
from ax_input import TextInput
from ax_input.protocols import Tokenizer

ConfigT = TypeVar("ConfigT", bound=Config[object])


class WindowInput:
    """Fits ``Pipeline`` of ax-recipes. Nothing is read before it is asked for."""

    class Config(ax_config.Config["WindowInput"]):
        """What to read, and how to deal it out."""

        paths: tuple[str, ...] = ()  # files, and folders of Python; none means Python's own json package
        seq_length: int = 256
        batch_size: int = 8
        order: Literal["random", "in a row", "a stripe a row"] = "random"
        holdout_fraction: float = 0.05
        seed: int = 0

    def __init__(
        self, cfg: Config, /, *, tokenizer: Tokenizer, on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        self._cfg, self._tokenizer, self._on_progress = cfg, tokenizer, on_progress

    def train(self) -> WindowStream:
        """A new stream, at its beginning."""
        return WindowStream(self._cfg, self._tokens[0])

    def validation(self, *, max_batches: int | None = None) -> list[Mapping[str, np.ndarray]]:
        """The end of the text, or of that the first ``max_batches``."""
        cfg, held_out = self._cfg, self._tokens[1]
        whole = (len(held_out) - 1) // (cfg.seq_length * cfg.batch_size)
        if whole == 0:
            raise ValueError(f"{len(held_out)} tokens are held out, which is less than a batch; raise holdout_fraction")
        stream = WindowStream(cfg.clone(order="in a row"), held_out)
        return [next(stream) for _ in range(whole if max_batches is None else min(whole, max_batches))]

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Rows and tokens of a row."""
        return self._cfg.batch_size, self._cfg.seq_length

    @property
    def bytes_per_token(self) -> float:
        """Of all text."""
        return self.report["bytes"] / self.report["tokens"]

    @property
    def report(self) -> dict[str, int]:
        """What was read."""
        size = sum(file.stat().st_size for file in self._files())
        return {"files": len(self._files()), "bytes": size, "tokens": sum(map(len, self._tokens))}

    @functools.cached_property
    def _tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """Those to train on, and those held out."""
        parts, files = [], self._files()
        for i, file in enumerate(files):
            ids = self._tokenizer.encode(file.read_text("utf-8"))
            parts.append(np.append(ids, self._tokenizer.eos_id).astype(np.int32))
            if self._on_progress is not None:
                self._on_progress(i + 1, len(files))
        tokens = np.concatenate(parts)
        kept = round(len(tokens) * (1 - self._cfg.holdout_fraction))
        return tokens[:kept], tokens[kept:]

    def _files(self) -> list[Path]:
        paths = [Path(path) for path in self._cfg.paths] or [Path(json.__file__).parent]
        return [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]


class WindowStream:
    """Endless; fits ``BatchSource`` of ax-trainer."""

    def __init__(self, cfg: WindowInput.Config, tokens: np.ndarray) -> None:
        if len(tokens) <= cfg.seq_length:
            raise ValueError(f"{len(tokens)} tokens are no more than a row of {cfg.seq_length}")
        self._cfg, self._tokens, self._step = cfg, tokens, 0

    def __iter__(self) -> Iterator[Mapping[str, np.ndarray]]:
        return self

    def __next__(self) -> Mapping[str, np.ndarray]:
        at = self._starts(self._step)[:, None] + np.arange(self._cfg.seq_length)
        self._step += 1
        return {"tokens": self._tokens[at], "targets": self._tokens[at + 1]}

    def get_state(self) -> bytes:
        """The number of batches given."""
        return str(self._step).encode()

    def set_state(self, state: bytes, /) -> None:
        """Continue after so many."""
        self._step = int(state)

    def _starts(self, step: int) -> np.ndarray:
        cfg, last = self._cfg, len(self._tokens) - self._cfg.seq_length  # one past the last start that has a target
        if cfg.order == "random":
            return np.random.default_rng((cfg.seed, step)).integers(0, last, cfg.batch_size)
        rows = np.arange(cfg.batch_size)
        if cfg.order == "in a row":
            return (step * cfg.batch_size + rows) * cfg.seq_length % last
        return (rows * (last // cfg.batch_size) + step * cfg.seq_length) % last


VARIANTS: Mapping[str, WindowInput.Config] = {
    "random": WindowInput.Config(),
    "random, another seed": WindowInput.Config(seed=1),
    "random, a tenth held out": WindowInput.Config(holdout_fraction=0.1),
    "random, a fifth held out": WindowInput.Config(holdout_fraction=0.2),
    "in a row": WindowInput.Config(order="in a row"),
    "in a row, a tenth held out": WindowInput.Config(order="in a row", holdout_fraction=0.1),
    "in a row, a fifth held out": WindowInput.Config(order="in a row", holdout_fraction=0.2),
    "stripes": WindowInput.Config(order="a stripe a row"),
    "stripes, a tenth held out": WindowInput.Config(order="a stripe a row", holdout_fraction=0.1),
    "stripes, a fifth held out": WindowInput.Config(order="a stripe a row", holdout_fraction=0.2),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """Windows of the same text, as many and as long as before."""
    return replace(tree, TextInput, VARIANTS[variant], carry=("paths", "seq_length", "batch_size"))
