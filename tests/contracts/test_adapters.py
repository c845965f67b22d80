"""Adapters of ax-layers under the loop of ax-trainer, on the mesh of ax-mesh: only they change, and the loss falls."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from ax_layers import DelayedRange, Int8Linear, QuantisedLinear, as_model, int8_base, lora, quantised
from ax_mesh import Mesh
from ax_trainer import Trainer
from ax_trainer.testing import MemoryBatches, MemorySink

from . import small


def train(model: object, *, num_steps: int = 8) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], list[float]]:
    """The parameters before and after by path, and the losses."""
    sink = MemorySink()
    trainer = Trainer.Config(optimizer=small.learner(), num_steps=num_steps).build(
        model=model,
        partitioner=Mesh.Config(axes={"data": 2, "fsdp": 2, "tensor": 2}).build(),
        batches=MemoryBatches([small.batch()] * num_steps),
        sinks=[sink],
    )
    before, after = trainer.init_state().params, trainer.run().state.params
    return by_path(before), by_path(after), list(sink.history("train").values())


def by_path(params: object) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def test_only_adapters_are_learnt() -> None:
    config = lora(int8_base(small.lm()), rank=4, alpha=8.0, targets=Int8Linear)
    before, after, losses = train(as_model(config.build(vocab_size=small.VOCAB_SIZE)))
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    adapters = {name for name in before if name.split("/")[-2] in {"down", "up"}}
    assert changed == adapters
    assert before["layers/attention/query/base/weight"].dtype == jnp.int8
    assert losses[-1] < losses[0]


def test_eight_bit_floats_with_delayed_ranges_learn() -> None:
    new = QuantisedLinear.Config(
        dtype="float8_e4m3fn", gradient_dtype="float8_e5m2", input_range=DelayedRange.Config(history_length=4)
    )
    _, after, losses = train(as_model(quantised(small.lm(), new).build(vocab_size=small.VOCAB_SIZE)))
    assert losses[-1] < losses[0]
    history = after["layers/attention/query/input_range/history"]
    assert (history > 0).all(), "each step assigned what it saw"
