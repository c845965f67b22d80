"""The training step of an experiment ahead of time, for devices that needn't be here.

``lower`` traces the step that training itself would run, from the config alone: shapes of the batch come from the input's
config, shapes of the state from the model's specs, and where everything lies from the mesh over the devices. No data is read
and no array is made, so a model of any size is lowered for any number of chips on a laptop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Never, cast

import jax
import numpy as np
from ax_layers import as_model

from ._experiment import Experiment, ExperimentError
from .protocols import SupportsBatchShapes, SupportsLowering


@dataclass(frozen=True)
class _BatchSpec:
    """An array of a batch, described as parameters are, so that the mesh's rules place it."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def axes(self) -> tuple[str | None, ...]:
        return ("batch", *(None,) * (len(self.shape) - 1))


class _NoData:
    """A stream of batches where none is going to be read."""

    def __next__(self) -> Never:
        raise StopIteration

    def get_state(self) -> bytes:
        return b""

    def set_state(self, state: bytes, /) -> None:
        """There is no position to take."""


def lower(config: Experiment.Config, devices: Sequence[jax.Device], /) -> jax.stages.Lowered:
    """The training step of ``config``, as it is (see ``for_accelerator``), traced for ``devices``.

    Raises:
        ExperimentError: The input's config doesn't tell the shapes of its batches, or the trainer can't be lowered.
    """
    mesh = config.mesh.build(devices=devices)
    if not isinstance(config.input, SupportsBatchShapes):
        raise ExperimentError(
            f"a {type(config.input).__qualname__} doesn't tell what its batches are before it is read; give it the method "
            "batch_shapes (see ax_recipes.protocols.SupportsBatchShapes)"
        )
    specs = {name: _BatchSpec(*described) for name, described in config.input.batch_shapes().items()}
    trainer = config.trainer.build(
        num_steps=config.num_steps,
        model=as_model(config.build().model, sharder=mesh, per_layer=config.per_layer_metrics),
        partitioner=mesh,
        batches=_NoData(),
    )
    if not isinstance(trainer, SupportsLowering):
        raise ExperimentError(
            f"a {type(trainer).__qualname__} can't be lowered; give it the method lower (see ax_recipes.protocols.SupportsLowering)"
        )
    shardings = cast("Mapping[str, jax.sharding.Sharding]", mesh.shardings(specs))
    return trainer.lower(
        {name: jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=shardings[name]) for name, spec in specs.items()}
    )
