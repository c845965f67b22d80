"""The kits pass for the smallest implementations, and fail for broken ones."""

from collections.abc import Mapping

import jax
import numpy as np
import pytest
from ax_trainer.protocols import Batch, HostBatch, Metrics, Tree
from ax_trainer.testing import (
    BigramModel,
    BigramParams,
    MemoryBatches,
    MemoryCheckpointer,
    MemorySink,
    SingleDevice,
    bigram_batches,
    check_batch_source,
    check_checkpointer,
    check_model,
    check_partitioner,
    check_sink,
    check_state_updates,
)

BATCHES = bigram_batches(3)


def test_the_smallest_implementations_pass() -> None:
    check_model(BigramModel(), BATCHES[0])
    check_partitioner(SingleDevice(), BigramModel().specs(), BATCHES[0])
    check_batch_source(lambda: MemoryBatches(BATCHES))
    checkpointer, sink = MemoryCheckpointer(), MemorySink()
    check_checkpointer(lambda: checkpointer)
    check_sink(lambda: sink, lambda: sink.records)


def test_a_model_that_reports_no_loss_fails() -> None:
    class Silent(BigramModel):
        def loss(
            self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool
        ) -> tuple[jax.Array, Metrics]:
            return super().loss(params, batch, key=key, train=train)[0], {}

    with pytest.raises(AssertionError, match="must report 'loss'"):
        check_model(Silent(), BATCHES[0])


def test_states_that_change_the_loss_fail() -> None:
    class OfAnotherLoss(BigramModel):
        def loss_and_updates(
            self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool
        ) -> tuple[jax.Array, tuple[Metrics, jax.Array]]:
            loss, metrics = self.loss(params, batch, key=key, train=train)
            return loss + 1, (metrics, params["bias"] + 1)

        def updated(self, params: BigramParams, updates: jax.Array, /) -> BigramParams:
            return {**params, "bias": updates[:3]}

    class OfAnotherShape(OfAnotherLoss):
        def loss_and_updates(
            self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool
        ) -> tuple[jax.Array, tuple[Metrics, jax.Array]]:
            _, rest = super().loss_and_updates(params, batch, key=key, train=train)
            return self.loss(params, batch, key=key, train=train)[0], rest

    with pytest.raises(AssertionError, match=r"lacks loss_and_updates\(\) or updated\(\)"):
        check_state_updates(BigramModel(), BATCHES[0])
    with pytest.raises(AssertionError, match=r"what loss_and_updates\(\) says"):
        check_state_updates(OfAnotherLoss(), BATCHES[0])
    with pytest.raises(AssertionError, match=r"must leave bias float32\[8\], but makes it float32\[3\]"):
        check_state_updates(OfAnotherShape(), BATCHES[0])


def test_a_source_that_writes_to_a_batch_it_gave_fails() -> None:
    class Reusing(MemoryBatches):
        buffer = np.zeros((8, 6), np.int32)

        def __next__(self) -> HostBatch:
            self.buffer[...] = super().__next__()["tokens"]
            return {"tokens": self.buffer}

    with pytest.raises(AssertionError, match="which its source may not write to any more"):
        check_batch_source(lambda: Reusing(BATCHES))


def test_a_source_that_forgets_its_position_fails() -> None:
    class Forgetful(MemoryBatches):
        def set_state(self, state: bytes, /) -> None:
            super().set_state(b"0")

    with pytest.raises(AssertionError, match=r"batch 1 after set_state\(\) at 1"):
        check_batch_source(lambda: Forgetful(BATCHES))


def test_a_checkpointer_that_keeps_donated_arrays_fails() -> None:
    class Lazy(MemoryCheckpointer):
        def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None:
            self.steps[step] = (arrays, dict(blobs))

    lazy = Lazy()
    with pytest.raises((AssertionError, RuntimeError)):
        check_checkpointer(lambda: lazy)


def test_a_checkpointer_that_rounds_fails() -> None:
    class Rounding(MemoryCheckpointer):
        def restore(self, step: int, abstract: Tree, /) -> tuple[Tree, Mapping[str, bytes]]:
            arrays, blobs = super().restore(step, abstract)
            return jax.tree.map(lambda x: x + 0, arrays), blobs  # -0.0 becomes 0.0

    rounding = Rounding()
    with pytest.raises(AssertionError, match="weight must be equal bit for bit"):
        check_checkpointer(lambda: rounding)


def test_a_sink_that_can_not_rewind_fails() -> None:
    class Keeping(MemorySink):
        def rewind(self, step: int, /) -> None:
            pass

    sink = Keeping()
    with pytest.raises(AssertionError, match=r"after rewind\(-1\)"):
        check_sink(lambda: sink, lambda: sink.records)
