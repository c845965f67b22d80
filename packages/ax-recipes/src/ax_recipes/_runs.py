"""A run's folder, opened again: the config that it was made with."""

from __future__ import annotations

from pathlib import Path

from ax_config import loads

from ._experiment import Experiment, ExperimentError


def config_of(run: Path, /) -> Experiment.Config:
    """The effective config of the run in this folder.

    Raises:
        ExperimentError: It is no run's folder, or not an experiment's.
    """
    file = run / "config.txt"
    if not file.is_file():
        raise ExperimentError(f"{run} is no run folder: it has no config.txt; train one with ax train --run {run}")
    config = loads(file.read_text(encoding="utf-8"))
    if not isinstance(config, Experiment.Config):
        raise ExperimentError(f"{file} describes a {type(config).__qualname__}, not an experiment")
    return config
