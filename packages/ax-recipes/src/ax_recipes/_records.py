"""One step of something, taken down: an experiment with its mesh and types, a run's checkpoint, a published model's weights.

A record is what ``ax_trainer.observe`` gives, with the batch that it was made on, and can be kept in a file: then the other side
may be computed on another machine, by another version, or long after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import jax
import numpy as np
from ax_layers import CausalLM, as_model
from ax_layers.protocols import ArrayTree
from ax_trainer import Difference, differences, observe

from ._experiment import Experiment, ExperimentError

Batch: TypeAlias = Mapping[str, np.ndarray]
_BATCH = "batch/"


@dataclass(frozen=True)
class Record:
    """What was computed, by name and in order, and on what."""

    batch: Batch
    observations: Mapping[str, np.ndarray]

    def save(self, file: Path, /) -> None:
        """Write it down, as numpy's .npz; types that numpy doesn't know become float32, which loses nothing of narrower ones."""
        batch = {f"{_BATCH}{name}": array for name, array in self.batch.items()}
        np.savez(file, **{name: _known(array) for name, array in {**batch, **self.observations}.items()})  # type: ignore[arg-type]

    @classmethod
    def load(cls, file: Path, /) -> Record:
        """What ``save`` wrote. Raises ExperimentError when it is something else."""
        try:
            with np.load(file) as saved:
                arrays = dict(saved)
        except (OSError, ValueError) as error:
            raise ExperimentError(f"{file} is no record that `ax diverge --save` wrote: {error}") from error
        batch = {name.removeprefix(_BATCH): array for name, array in arrays.items() if name.startswith(_BATCH)}
        if not batch:
            raise ExperimentError(f"{file} holds no batch, so it is no record that `ax diverge --save` wrote")
        return cls(batch, {name: array for name, array in arrays.items() if not name.startswith(_BATCH)})

    def compare(self, other: Record, /) -> list[Difference]:
        """What differs, in this one's order. Raises ExperimentError when the batches do."""
        for name in self.batch.keys() & other.batch.keys():
            if not np.array_equal(self.batch[name], other.batch[name]):
                raise ExperimentError(f"the two records are of different batches: {name!r} differs")
        return differences(self.observations, other.observations)


def _known(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.isbuiltin == 1 else array.astype(np.float32)


def first_batch(config: Experiment.Config, *, num_rows: int, length: int) -> Batch:
    """The beginning of the first batch that the experiment would train on: so many rows, so many tokens of each."""
    data = config.build().read().train()
    return {
        name: array[:num_rows, :length] if array.ndim > 1 else array[:num_rows] for name, array in next(data).items()
    }


def record_experiment(
    config: Experiment.Config, batch: Batch, *, run: Path | None, seed: int, num_devices: int | None = None
) -> Record:
    """A step of an experiment, on its mesh over all devices, or over the first ``num_devices``.

    Parameters are fresh, or those of the newest checkpoint in ``run``.
    """
    experiment = config.build()
    mesh = config.mesh.build(**({} if num_devices is None else {"devices": jax.devices()[:num_devices]}))
    model = as_model(experiment.model, sharder=mesh)
    with mesh.activate():
        if run is None:
            params: ArrayTree = jax.jit(model.init, out_shardings=mesh.shardings(model.specs()))(jax.random.key(seed))
        else:
            _, params = experiment.parameters(run)
            params = jax.device_put(params, mesh.shardings(model.specs()))
        return Record(batch, observe(model, params, mesh.put(batch), key=jax.random.key(seed)))


def record_model(config: CausalLM.Config, params: ArrayTree, batch: Batch) -> Record:
    """A step of a language model on one device, without dropout."""
    model = as_model(config.build())
    placed = {name: jax.numpy.asarray(array) for name, array in batch.items()}
    return Record(batch, observe(model, params, placed, key=jax.random.key(0), train=False))
