"""The training step of an experiment ahead of time, for devices that needn't be here.

``lower`` traces the step that training itself would run, from the config alone: shapes of the batch come from the input's
config, shapes of the state from the model's specs, and where everything lies from the mesh over the devices. No data is read
and no array is made, so a model of any size is lowered for any number of chips on a laptop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Never, Protocol

import jax
import numpy as np
from ax_layers import as_model
from ax_mesh import AcceleratorGroup, topology

from ._experiment import Experiment, ExperimentError
from .protocols import Loop, Placement, SupportsBatchShapes, SupportsDescription, SupportsLowering

Shapes = Mapping[str, tuple[tuple[int, ...], np.dtype]]


class Described(Placement, SupportsDescription, Protocol):
    """Devices that may be nowhere, for tracing."""


class _NoData:
    """A stream of batches where none is going to be read."""

    def __next__(self) -> Never:
        raise StopIteration

    def get_state(self) -> bytes:
        return b""

    def set_state(self, state: bytes, /) -> None:
        """There is no position to take."""


def lower(config: Experiment.Config, group: AcceleratorGroup, /) -> jax.stages.Lowered:
    """The training step of ``config``, as it is (see ``for_accelerator``), traced for an accelerator (``accelerator_group``).

    Raises:
        ExperimentError: A part of the experiment can't tell what has to be known.
        TopologyError: What describes such devices isn't installed.
    """
    is_nowhere = group.accelerator.platform == "neuron"
    mesh = described_mesh(config, group) if is_nowhere else _built(config, devices=topology(group.name))
    trainer = loop_without_data(config, mesh)
    if not isinstance(trainer, SupportsLowering):
        raise _lacks(trainer, "lower", "SupportsLowering")
    batch = {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=mesh.batch_sharding(shape[0]))
        for name, (shape, dtype) in batch_shapes(config).items()
    }
    return trainer.lower(batch, platform=group.accelerator.platform if is_nowhere else None)


def loop_without_data(config: Experiment.Config, mesh: Placement, /) -> Loop:
    """The trainer of ``config`` over ``mesh``, to be asked and not to be run."""
    return config.trainer.build(
        num_steps=config.num_steps,
        model=as_model(config.build().model, sharder=mesh, per_layer=config.per_layer_metrics),
        partitioner=mesh,
        batches=_NoData(),
    )


def described_mesh(config: Experiment.Config, group: AcceleratorGroup) -> Described:
    """The mesh of ``config`` over devices of which there is only the number. Raises ExperimentError."""
    hosts = -(-group.num_chips // group.accelerator.chips_per_host)
    num_groups = group.num_slices if group.accelerator.platform == "tpu" else hosts
    return _built(config, devices=group.num_devices, num_groups=num_groups)


def batch_shapes(config: Experiment.Config) -> Shapes:
    """The shapes of a batch. Raises ExperimentError when the input's config doesn't tell them."""
    if not isinstance(config.input, SupportsBatchShapes):
        raise _lacks(config.input, "batch_shapes", "SupportsBatchShapes")
    return config.input.batch_shapes()


def _built(config: Experiment.Config, **devices: object) -> Described:
    mesh = config.mesh.build(**devices)
    if not isinstance(mesh, SupportsDescription):
        raise _lacks(mesh, "batch_sharding", "SupportsDescription")
    return mesh


def _lacks(part: object, method: str, protocol: str) -> ExperimentError:
    return ExperimentError(
        f"a {type(part).__qualname__} can't be asked before there is a run; give it the method {method} (see "
        f"ax_recipes.protocols.{protocol})"
    )
