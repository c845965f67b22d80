"""Optimizers of optax by config alone, Muon and SOAP: they train on eight devices as on one, and what they keep is split alike."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from functools import cache

import jax
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import Buildable, config_for
from ax_trainer import (
    SOAP,
    Compact,
    Learner,
    Muon,
    Offload,
    ParameterAverage,
    ScheduleFree,
    TrainState,
    abstract_state,
    init_state,
    train_step,
)
from ax_trainer.protocols import Batch, HostBatch, Optimizer, Partitioner, SupportsSpecs
from ax_trainer.testing import ArraySpec, BigramModel, BigramParams, SingleDevice, bigram_batches

P = jax.sharding.PartitionSpec
BATCHES = bigram_batches(8)
MODEL = BigramModel(dim=16, dropout=0.0)


places_on_hosts = pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 2),
    reason="XLA's CPU backend places nothing on the host in programs for several devices",
)


class FullySharded:
    """Splits each parameter's "embed" dim and the batch over all eight devices."""

    def __init__(self) -> None:
        self._mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def shardings(self, specs: object, /) -> object:
        def place(spec: ArraySpec) -> jax.sharding.Sharding:
            return jax.NamedSharding(self._mesh, P(*("data" if axis == "embed" else None for axis in spec.axes)))

        return jax.tree.map(place, specs)

    def replicated(self) -> jax.sharding.Sharding:
        return jax.NamedSharding(self._mesh, P())

    def put(self, batch: HostBatch, /) -> Batch:
        return {name: jax.device_put(x, jax.NamedSharding(self._mesh, P("data"))) for name, x in batch.items()}

    def activate(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def learner(rule: Buildable[Optimizer] | Buildable[SupportsSpecs], rate: float) -> Learner.Config:
    return Learner.Config(
        schedule=config_for(optax.constant_schedule)(value=rate), rule=rule, clip_norm=1.0, weight_decay=0.01
    )


ADAM = config_for(optax.scale_by_adam)(b1=0.9, b2=0.95)
ADAFACTOR = config_for(optax.scale_by_factored_rms)(min_dim_size_to_factor=8)
BFLOAT16 = Compact.Config(rule=ADAM, min_size=32)
LEARNERS: Mapping[str, Learner.Config] = {
    "adamw": learner(ADAM, 3e-2),
    "adafactor": learner(ADAFACTOR, 3e-2),
    "lion": learner(config_for(optax.scale_by_lion)(), 1e-2),
    "muon": learner(Muon.Config(others_axes=()), 0.1),
    "soap": learner(SOAP.Config(others_axes=(), refresh_every=2), 3e-2),
    "schedule-free": learner(config_for(optax.scale_by_adam)(b1=0.0, b2=0.95), 3e-2).clone(
        average=ScheduleFree.Config()
    ),
    "averaged": learner(ADAM, 3e-2).clone(average=ParameterAverage.Config(dtype="bfloat16")),
    "bfloat16": learner(BFLOAT16, 3e-2),
    "int8": learner(Compact.Config(rule=ADAM, dtype="int8", block=8, min_size=32), 3e-2),
    "bfloat16 on the host": learner(Offload.Config(rule=BFLOAT16), 3e-2),
}


@cache
def trained(name: str, *, sharded: bool) -> tuple[list[float], TrainState[BigramParams]]:
    """The losses, and the last state."""
    place: Partitioner = FullySharded() if sharded else SingleDevice()
    optimizer = LEARNERS[name].build().for_specs(MODEL.specs())
    batches = [place.put(batch) for batch in BATCHES]
    state, losses = init_state(MODEL, optimizer, place, seed=0), []
    described = abstract_state(MODEL, optimizer, place)
    step = jax.jit(
        train_step(MODEL, optimizer, partitioner=place),
        donate_argnums=0,
        out_shardings=(jax.tree.map(lambda leaf: leaf.sharding, described), place.replicated()),
    )
    for batch in batches:
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"][0]))
    return losses, state


@pytest.mark.parametrize(
    "name",
    [
        *["adafactor", "lion", "muon", "soap", "schedule-free", "averaged", "int8"],
        pytest.param("bfloat16 on the host", marks=places_on_hosts),
    ],
)
def test_eight_devices_learn(name: str) -> None:
    losses, state = trained(name, sharded=True)
    assert losses[-1] < losses[0] - 0.3
    described = abstract_state(MODEL, LEARNERS[name].build().for_specs(MODEL.specs()), FullySharded())
    for want, got in zip(jax.tree.leaves(described), jax.tree.leaves(state), strict=True):
        assert (got.shape, got.dtype, got.sharding) == (want.shape, want.dtype, want.sharding)


@pytest.mark.parametrize("name", ["adafactor", "muon"])
def test_they_learn_like_one(name: str) -> None:
    (one, _), (eight, _) = trained(name, sharded=False), trained(name, sharded=True)
    np.testing.assert_allclose(eight, one, rtol=2e-4)


def held(name: str, *, sharded: bool) -> int:
    """Bytes of the optimizer's state on a device, or on the host for it."""
    place: Partitioner = FullySharded() if sharded else SingleDevice()
    described = abstract_state(MODEL, LEARNERS[name].build().for_specs(MODEL.specs()), place)
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(described.opt_state)
    )


@pytest.mark.parametrize("name", LEARNERS)
def test_what_is_kept_is_split(name: str) -> None:
    assert held(name, sharded=True) < (0.6 if name in ("adafactor", "int8", "soap") else 0.2) * held(
        name, sharded=False
    )


def test_less_is_kept() -> None:
    whole = held("adamw", sharded=False)
    assert held("adafactor", sharded=False) < 0.15 * whole
    assert held("lion", sharded=False) < 0.55 * whole
    assert held("bfloat16", sharded=False) < 0.6 * whole
    assert held("int8", sharded=False) < 0.5 * whole, "a scale for eight numbers is a lot"


def test_factored_moments_lie_along_the_dim_that_they_have() -> None:
    optimizer = LEARNERS["adafactor"].build().for_specs(MODEL.specs())
    described = abstract_state(MODEL, optimizer, FullySharded()).opt_state
    (rows, columns) = (optax.tree.get(described, name)["head"] for name in ("v_row", "v_col"))
    assert (rows.shape, rows.sharding.spec) == ((16,), P("data"))
    assert (columns.shape, columns.sharding.spec) == ((17,), P(None))


@places_on_hosts
def test_what_is_offloaded_lies_on_the_host() -> None:
    outside, state = trained("bfloat16 on the host", sharded=True)
    moments = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim == 2]
    assert len(moments) == 4
    assert {leaf.sharding.memory_kind for leaf in moments} == {"pinned_host"}
    assert {leaf.sharding.memory_kind for leaf in jax.tree.leaves(state.params)} == {"device"}
    within, _ = trained("bfloat16", sharded=True)
    assert within == outside
