"""Run a job here: in this process, in a folder of this machine, until it ends or a signal stops it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ax_runtime.protocols import Job

from ._run_folder import RunFolder, never
from ._signals import StopOnSignals


@dataclass(frozen=True)
class Outcome:
    """How a run ended: by itself, or because ``stopped_by`` ("SIGINT", "SIGTERM") asked for it."""

    stopped_by: str | None

    @property
    def finished(self) -> bool:
        """Whether the job came to its own end."""
        return self.stopped_by is None


def run_locally(
    job: Job,
    path: str | os.PathLike[str],
    /,
    *,
    config: str,
    may_differ: Callable[[str], bool] = never,
    environment: Mapping[str, object] | None = None,
) -> Outcome:
    """Run ``job`` in the run folder at ``path``, created or reopened, with the folder locked and signals caught.

    ``config``, ``may_differ`` and ``environment`` are those of :class:`RunFolder`. What the job raises passes through, with the lock
    released and the signal handlers put back. Call it in the main thread.
    """
    with (
        RunFolder(path, config=config, may_differ=may_differ, environment=environment) as folder,
        StopOnSignals() as stop,
    ):
        job.run(folder.path, stop)
    return Outcome(stopped_by=stop.signal_name)
