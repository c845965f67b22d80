"""Whatever a learner remembers, on the host and in eight bits, goes through Orbax on a mesh of eight, and training goes on bit for bit."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import jax
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import config_for
from ax_mesh import Mesh
from ax_runtime.checkpoint import OrbaxCheckpointer
from ax_trainer import (
    SOAP,
    Compact,
    Learner,
    LossScale,
    Offload,
    ParameterAverage,
    ParameterGroup,
    SkipNonFinite,
    Trainer,
    TrainState,
)
from ax_trainer.testing import BigramModel, BigramParams, MemoryBatches, bigram_batches

PACKED = Compact.Config(rule=config_for(optax.scale_by_adam)(), dtype="int8", block=8, min_size=32)
LEARNER = Learner.Config(
    schedule=config_for(optax.constant_schedule)(value=1e-2),
    rule=Offload.Config(rule=PACKED),
    groups={"vectors": ParameterGroup.Config(patterns=("bias",), rule=SOAP.Config())},
    average=ParameterAverage.Config(),
    skip=(SkipNonFinite.Config(), LossScale.Config()),
)


def trained(folder: Path, num_steps: int) -> TrainState[BigramParams]:
    """From where an earlier run in the folder ended."""
    with closing(OrbaxCheckpointer.Config().build(folder=folder)) as checkpointer:
        trainer = Trainer(
            Trainer.Config(num_steps=num_steps, optimizer=LEARNER),
            model=BigramModel(),
            partitioner=Mesh.Config(axes={"fsdp": 8}).build(),
            batches=MemoryBatches(bigram_batches(4)),
            checkpointer=checkpointer,
        )
        return trainer.run().state


def test_all_of_it_is_kept(tmp_path: Path) -> None:
    trained(tmp_path / "killed", 2)
    whole, resumed = trained(tmp_path / "whole", 4), trained(tmp_path / "killed", 4)
    for want, got in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        assert got.sharding == want.sharding
        np.testing.assert_array_equal(got, want)
    kinds = {leaf.sharding.memory_kind for leaf in jax.tree.leaves(resumed.opt_state)}
    assert kinds == {"device", "pinned_host"}
