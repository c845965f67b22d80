"""The mesh of ax-mesh under the models of ax-layers and the loop of ax-trainer: what only all three show."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from ax_layers import as_model
from ax_mesh import Mesh, Rule
from ax_trainer import Trainer
from ax_trainer.protocols import Partitioner, SupportsCompilerOptions
from ax_trainer.testing import MemoryBatches, MemorySink, SingleDevice

from . import fits, small

WHOLE_HEADS: tuple[Rule, ...] = (("heads", None), ("kv_heads", None))


def test_overrides_reach_the_module_of_that_path_and_no_other() -> None:
    def constraints(pattern: str | None) -> tuple[int, int, int]:
        """How many activations are split by heads, by the inner dim of the feed-forward, and, between layers, by rows."""
        overrides = {} if pattern is None else {pattern: (*WHOLE_HEADS, ("mlp", None))}
        mesh = Mesh.Config(axes={"fsdp": 2, "tensor": 4}, overrides=overrides).build()
        model = as_model(small.lm().build(vocab_size=small.VOCAB_SIZE), sharder=mesh)
        params = jax.eval_shape(model.init, jax.random.key(0))
        with mesh.activate():
            loss = jax.jit(lambda params, batch: model.loss(params, batch, key=jax.random.key(0), train=True)[0])
            program = loss.lower(params, small.batch()).as_text()
        found = re.findall(r"sharding_constraint .*<@\w+, (\[.*\])>", program)
        return (
            sum(dims.endswith('{"tensor"}, {}]') and dims.count("{") == 4 for dims in found),
            sum(dims.endswith('{"tensor"}]') and dims.count("{") == 3 for dims in found),
            sum(dims.endswith('{"tensor"}, {}]') and dims.count("{") == 3 for dims in found),
        )

    heads, inner, stream = constraints(None)
    assert heads == 4
    assert inner == 1
    assert stream >= 3, "where nothing else is split over the axis, the sequence is"
    attention_whole = constraints("layers/attention")
    assert attention_whole[:2] == (0, inner)
    assert attention_whole[2] == stream
    assert constraints("layers/ffn")[:2] == (heads, 0)


@pytest.mark.parametrize("name", fits.SUPPORT_OPTIMIZER_SHARDINGS)
def test_supports_optimizer_shardings(name: str) -> None:
    specs = small.lm_model().specs()
    shardings = fits.SUPPORT_OPTIMIZER_SHARDINGS[name]().optimizer_shardings(specs)
    for spec, sharding in zip(jax.tree.leaves(specs), jax.tree.leaves(shardings), strict=True):
        assert len(sharding.shard_shape(spec.shape)) == len(spec.shape)


@pytest.mark.parametrize(
    ("config", "parameters", "optimizer"),
    [
        (Mesh.Config(axes={"data": 8}, optimizer_rules=(("embed", "data"),)), 1, 8),
        (Mesh.Config(axes={"data": 2, "fsdp": 4}, optimizer_rules=(("embed", ("fsdp", "data")),)), 4, 8),
        (Mesh.Config(axes={"data": 2, "fsdp": 4}), 4, 4),
        (Mesh.Config(axes={"fsdp": 8}), 8, 8),
    ],
    ids=["ZeRO-1", "HSDP with ZeRO-1 between groups", "HSDP", "ZeRO-3"],
)
def test_the_state_is_split_as_named_and_training_is_that_of_one_device(
    config: Mesh.Config, parameters: int, optimizer: int
) -> None:
    def train(partitioner: Partitioner) -> tuple[list[float], dict[str, int]]:
        sink = MemorySink()
        trainer = Trainer.Config(optimizer=small.learner(), num_steps=3).build(
            model=small.lm_model(), partitioner=partitioner, batches=MemoryBatches([small.batch()] * 3), sinks=[sink]
        )
        state = trainer.run().state
        held = {
            name: sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(part))
            for name, part in (("parameters", state.params), ("optimizer", state.opt_state))
        }
        return list(sink.history("train").values()), held

    want, one = train(SingleDevice())
    got, split = train(config.build())
    np.testing.assert_allclose(got, want, rtol=1e-5)
    # Norms' scales, a hundredth of it all, stay whole.
    assert split["parameters"] == pytest.approx(one["parameters"] / parameters, rel=0.1)
    assert split["optimizer"] == pytest.approx(one["optimizer"] / optimizer, rel=0.1)


@pytest.mark.parametrize("name", fits.SUPPORT_COMPILER_OPTIONS)
def test_a_mesh_tells_the_compiler_its_options(name: str) -> None:
    partitioner = fits.SUPPORT_COMPILER_OPTIONS[name]()
    assert isinstance(partitioner, SupportsCompilerOptions)
    assert dict(partitioner.compiler_options)
    compiled = jax.jit(jax.numpy.sin).lower(1.0).compile(compiler_options=dict(partitioner.compiler_options))
    assert float(compiled(1.0)) == pytest.approx(float(np.sin(1.0)))
