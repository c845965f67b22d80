"""Metrics in MLflow, on a tracking server or in a store of this machine.

MLflow only appends: a step that is logged again has two values. So every start of a training run, and every rewind of one, is
a run of its own there, tagged ``ax.run`` with the folder's name and ``ax.from_step`` with where it goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, final

import ax_config
from ax_config import field

from ax_runtime.agent import read_config

if TYPE_CHECKING:
    from mlflow import MlflowClient

# What the server takes at once, and of one parameter: https://mlflow.org/docs/latest/rest-api.html#request-limits
_PARAMS_AT_ONCE = 100
_LONGEST_PARAM = 6000
_NOT_IN_NAMES = re.compile(r"[^\w\-./: ]")


@final
class MlflowSink:
    """Logs values called ``<name>/<value's name>``. Fits a trainer's ``MetricSink``.

    The config in the run's folder becomes the parameters of the MLflow run, path by path.
    """

    class Config(ax_config.Config["MlflowSink"]):
        """Which experiment, and where."""

        experiment: str
        tracking_uri: str | None = field(
            default=None, help="http://…, sqlite:///…; None means the environment's MLFLOW_TRACKING_URI"
        )

    def __init__(self, cfg: Config, /, *, folder: Path) -> None:
        self._cfg = cfg
        self._folder = folder
        self._client: MlflowClient | None = None
        self._run_id = ""

    def rewind(self, step: int, /) -> None:
        """Begin a new run, which goes on after ``step``."""
        self.close()
        self._begin(max(step, 0))

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        """Log a metric for each value; they are stored once the call returns."""
        from mlflow.entities import Metric

        client = self._client or self._begin(step)
        now = time.time_ns() // 1_000_000
        metrics = [Metric(f"{name}/{key}", float(value), now, step) for key, value in values.items()]
        client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        """End the run; closing again does nothing."""
        if self._client is not None:
            self._client.set_terminated(self._run_id)
            self._client = None

    def _begin(self, step: int) -> MlflowClient:
        # Imported here, not above: it takes seconds.
        from mlflow import MlflowClient
        from mlflow.entities import Param

        client = self._client = MlflowClient(tracking_uri=self._cfg.tracking_uri)
        experiment = client.get_experiment_by_name(self._cfg.experiment)
        experiment_id = (
            experiment.experiment_id if experiment is not None else client.create_experiment(self._cfg.experiment)
        )
        name = self._folder.name
        tags = {"ax.run": name, "ax.from_step": str(step)}
        self._run_id = client.create_run(experiment_id, tags=tags, run_name=f"{name}-from-{step}").info.run_id
        config = read_config(self._folder).items()
        params = (Param(_NOT_IN_NAMES.sub("_", path), text[:_LONGEST_PARAM]) for path, text in config)
        while some := list(islice(params, _PARAMS_AT_ONCE)):
            client.log_batch(self._run_id, params=some)
        return client
