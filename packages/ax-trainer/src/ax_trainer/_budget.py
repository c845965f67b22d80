"""How long a run may take, beside its number of steps: whichever is used up first ends it.

Tokens and epochs are counted by what was given out, so a run that was killed and goes on ends at the same step. Seconds depend on
the machine; they are those of the run, over all its processes, as its checkpoints know them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import ax_config

from .protocols import BatchSource, SupportsEpochs

Spent: TypeAlias = Literal["tokens", "epochs"]


@final
class Budget:
    """Limits; see the module's docstring.

    Args:
        cfg: The limits.
        batches: The training data; has to ``SupportsEpochs`` if these are limited.
        tokens_per_step: Positions in a batch, over all processes; has to be known if tokens are limited.

    Raises:
        ValueError: A limit isn't positive, or can't be told from the data.
    """

    class Config(ax_config.Config["Budget"]):
        """The limits; None is none."""

        max_tokens: float | None = None
        """Tokens trained on: the positions of the batches, padding included."""
        max_epochs: float | None = None
        """Times that the data was gone through."""
        max_seconds: float | None = None
        """Seconds of the run, restarts included, the time between processes not."""

    def __init__(self, cfg: Config, /, *, batches: BatchSource, tokens_per_step: float | None) -> None:
        for name, value in (
            ("max_tokens", cfg.max_tokens),
            ("max_epochs", cfg.max_epochs),
            ("max_seconds", cfg.max_seconds),
        ):
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        if cfg.max_tokens is not None and tokens_per_step is None:
            raise ValueError("max_tokens needs tokens_per_step: tell the trainer how many tokens a batch has")
        if cfg.max_epochs is not None and not isinstance(batches, SupportsEpochs):
            raise ValueError(
                f"max_epochs needs a batch source that counts them (SupportsEpochs), which {type(batches).__name__} doesn't"
            )
        self._cfg = cfg
        self._batches = batches
        self._tokens_per_step = tokens_per_step

    def spent(self, step: int, position: bytes, /) -> Spent | None:
        """What is used up after ``step``, when the data stands at ``position``."""
        cfg = self._cfg
        if cfg.max_tokens is not None:
            assert self._tokens_per_step is not None
            if step * self._tokens_per_step >= cfg.max_tokens:
                return "tokens"
        if cfg.max_epochs is not None:
            assert isinstance(self._batches, SupportsEpochs)
            if self._batches.epochs(position) >= cfg.max_epochs:
                return "epochs"
        return None

    def is_late(self, seconds: float, /) -> bool:
        """Whether a run of so many seconds has taken as long as it may."""
        return self._cfg.max_seconds is not None and seconds >= self._cfg.max_seconds
