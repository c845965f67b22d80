"""Metrics in Weights & Biases, sent as they come or kept in files that ``wandb sync`` sends later.

What W&B has been told it keeps: a step can't be taken back. So every start of a training run, and every rewind of one, is a
run of its own there, in one group that has the run folder's name. Within each the steps only grow, and the charts of a group
show which continued which.

wandb writes in a process of its own. One that survives ours finishes; what the last half second held may be lost with
ours, which is one reason why the run's own memory is its JSONL file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

import ax_config
from ax_config import field

from ax_runtime.agent import read_config

if TYPE_CHECKING:
    import wandb

_FLUSH_SECONDS = 0.5


@final
class WandbSink:
    """Logs values called ``<name>/<value's name>`` over "step". Fits a trainer's ``MetricSink``.

    The config in the run's folder becomes that of the W&B run, path by path.
    """

    class Config(ax_config.Config["WandbSink"]):
        """Which project, and whether now or later."""

        project: str
        entity: str | None = field(default=None, help="a user or team; None means wandb's default")
        mode: Literal["online", "offline"] = field(
            default="online", help="offline writes to the run's folder and needs no network: wandb sync sends it later"
        )
        tags: tuple[str, ...] = ()

    def __init__(self, cfg: Config, /, *, folder: Path) -> None:
        self._cfg = cfg
        self._folder = folder
        self._run: wandb.Run | None = None

    def rewind(self, step: int, /) -> None:
        """Begin a new run in the group; it goes on after ``step``."""
        self.close()
        self._run = self._begin(max(step, 0))

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        """Hand the values to wandb."""
        if self._run is None:
            self._run = self._begin(step)
        self._run.log({"step": step, **{f"{name}/{key}": float(value) for key, value in values.items()}})

    def close(self) -> None:
        """End the run; wandb's process writes or sends what is left. Closing again does nothing."""
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _begin(self, step: int) -> wandb.Run:
        # Imported here, not above: it takes a second.
        import wandb

        cfg = self._cfg
        run = wandb.init(
            project=cfg.project,
            entity=cfg.entity,
            group=self._folder.name,
            name=f"{self._folder.name}-from-{step}",
            tags=cfg.tags,
            dir=self._folder,
            mode=cfg.mode,
            config=dict(read_config(self._folder)),
            reinit="create_new",  # Others in this process may have runs of their own.
            settings=wandb.Settings(
                silent=True, console="off", x_disable_stats=True, x_transaction_log_flush_interval=_FLUSH_SECONDS
            ),
        )
        run.define_metric("*", step_metric="step")
        return run
