"""The optimizer's state, split further than the parameters: the same numbers in less memory, and what is sent for it."""

from __future__ import annotations

import contextlib
import math
import re

import jax
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import Learner, Trainer, abstract_state, lower_step
from ax_trainer.protocols import Batch, HostBatch, SupportsOptimizerShardings
from ax_trainer.testing import (
    ArraySpec,
    BigramModel,
    MemoryBatches,
    MemoryCheckpointer,
    MemorySink,
    SingleDevice,
    bigram_batches,
)

P = jax.sharding.PartitionSpec
BATCHES = bigram_batches(4)


class DataParallel:
    """Whole parameters on eight devices."""

    def __init__(self) -> None:
        self._mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def shardings(self, specs: object, /) -> object:
        return jax.tree.map(lambda _: self.replicated(), specs)

    def replicated(self) -> jax.sharding.Sharding:
        return jax.NamedSharding(self._mesh, P())

    def put(self, batch: HostBatch, /) -> Batch:
        return {name: jax.device_put(x, jax.NamedSharding(self._mesh, P("data"))) for name, x in batch.items()}

    def activate(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class ZeroOne(DataParallel):
    """What is remembered of them is split along "embed"."""

    def optimizer_shardings(self, specs: object, /) -> object:
        def place(spec: ArraySpec) -> jax.sharding.Sharding:
            return jax.NamedSharding(self._mesh, P(*("data" if axis == "embed" else None for axis in spec.axes)))

        return jax.tree.map(place, specs)


def learner() -> Learner.Config:
    return Learner.Config(schedule=config_for(optax.constant_schedule)(value=1e-2), clip_norm=0.5, weight_decay=0.1)


def test_what_is_remembered_is_split_and_parameters_are_not() -> None:
    assert isinstance(ZeroOne(), SupportsOptimizerShardings)
    assert not isinstance(DataParallel(), SupportsOptimizerShardings)
    optimizer = learner().build().for_specs(BigramModel().specs())
    state = abstract_state(BigramModel(), optimizer, ZeroOne())
    assert all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(state.params))
    moments = optax.tree.get(state.opt_state, "mu")
    assert moments["head"].sharding.spec == P("data", None)
    assert state.params["head"].shape == (8, 17)

    def held(partitioner: DataParallel) -> int:
        opt_state = abstract_state(BigramModel(), optimizer, partitioner).opt_state
        return sum(
            int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
            for leaf in jax.tree.leaves(opt_state)
        )

    assert held(ZeroOne()) < 0.2 * held(DataParallel())


@pytest.mark.parametrize("num_microbatches", [1, 2])
def test_the_numbers_are_those_of_one_device(num_microbatches: int) -> None:
    histories, states = [], []
    for partitioner in (SingleDevice(), ZeroOne()):
        sink = MemorySink()
        trainer = Trainer(
            Trainer.Config(num_steps=6, optimizer=learner(), num_microbatches=num_microbatches),
            model=BigramModel(),
            partitioner=partitioner,
            batches=MemoryBatches(BATCHES),
            sinks=[sink],
            checkpointer=MemoryCheckpointer(),
        )
        states.append(trainer.run().state)
        histories.append(sink.history("train"))
    np.testing.assert_allclose(list(histories[0].values()), list(histories[1].values()), rtol=1e-5)
    for one, eight in zip(jax.tree.leaves(states[0]), jax.tree.leaves(states[1]), strict=True):
        np.testing.assert_allclose(one, eight, rtol=1e-4, atol=1e-6)


def test_gradients_are_summed_into_parts_and_parameters_gathered_from_them() -> None:
    optimizer = learner().build().for_specs(BigramModel().specs())

    def program(partitioner: DataParallel) -> str:
        batch = {
            name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
            for name, x in partitioner.put(BATCHES[0]).items()
        }
        return lower_step(BigramModel(), optimizer, partitioner, batch).compile().as_text() or ""

    def gathered(partitioner: DataParallel) -> list[int]:
        found = re.findall(r"= f32\[([\d,]+)\]\S* all-gather\(", program(partitioner))
        return sorted(math.prod(map(int, shape.split(","))) for shape in found)

    assert gathered(DataParallel()) == []
    assert gathered(ZeroOne()) == sorted(math.prod(spec.shape) for spec in jax.tree.leaves(BigramModel().specs()))
