"""Small runs of the trainer, and one that can be killed at any moment."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import config_for
from ax_trainer import Evaluator, Result, Trainer
from ax_trainer.protocols import Batch, Checkpointer, Hook, HostBatch, Metrics, Partitioner, StopSignal
from ax_trainer.testing import (
    BigramModel,
    BigramParams,
    MemoryBatches,
    MemoryCheckpointer,
    MemorySink,
    SingleDevice,
    bigram_batches,
)
from jax.sharding import Mesh, NamedSharding, PartitionSpec

BATCHES = bigram_batches(7)
HELD_OUT = [*bigram_batches(2, seed=1), *bigram_batches(1, batch_size=3, seed=2)]
STEPS = 12


def config(**changes: object) -> Trainer.Config:
    cfg = Trainer.Config(
        num_steps=STEPS,
        optimizer=config_for(optax.sgd)(learning_rate=0.5, momentum=0.9),
        seed=3,
        evaluate_every=4,
        checkpoint_every=3,
    )
    return cfg.clone(**changes)


BAD = 4
"""The index of the batch that ``Poisoned`` chokes on: that of step 5."""


class Poisoned(BigramModel):
    """Multiplies the loss of one batch."""

    def __init__(self, factor: float = math.nan) -> None:
        super().__init__()
        self._factor = factor

    def loss(self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool) -> tuple[jax.Array, Metrics]:
        loss, metrics = super().loss(params, batch, key=key, train=train)
        is_bad = jnp.all(batch["tokens"] == BATCHES[BAD]["tokens"]) if batch["tokens"].shape == (8, 6) else False
        loss = loss * jnp.where(is_bad, self._factor, 1.0)
        return loss, {**metrics, "loss": (loss, metrics["loss"][1])}


class ByRows:
    """Fits ``Partitioner``: every device has all parameters and some rows."""

    def __init__(self, devices: Sequence[jax.Device]) -> None:
        self._mesh = Mesh(np.array(devices), ("rows",))

    def shardings(self, specs: object, /) -> object:
        return jax.tree.map(lambda _: self.replicated(), specs)

    def replicated(self) -> NamedSharding:
        return NamedSharding(self._mesh, PartitionSpec())

    def put(self, batch: HostBatch, /) -> Batch:
        rows = NamedSharding(self._mesh, PartitionSpec("rows"))
        return {name: jax.make_array_from_process_local_data(rows, array) for name, array in batch.items()}

    def activate(self) -> AbstractContextManager[None]:
        return nullcontext()


class StopAt:
    def __init__(self, step: int) -> None:
        self._step = step

    def should_stop(self, step: int, /) -> bool:
        return step >= self._step


def train(
    checkpointer: Checkpointer | None = None,
    sink: MemorySink | None = None,
    *,
    partitioner: Partitioner | None = None,
    batches: MemoryBatches | None = None,
    stop: StopSignal | None = None,
    model: BigramModel | None = None,
    evaluators: Mapping[str, Evaluator] | None = None,
    hooks: Sequence[Hook] = (),
    **changes: object,
) -> Result[BigramParams]:
    trainer = Trainer(
        config(**changes),
        model=model or BigramModel(),
        partitioner=partitioner or SingleDevice(),
        batches=batches or MemoryBatches(BATCHES),
        evaluators={"valid": Evaluator(lambda: HELD_OUT)} if evaluators is None else evaluators,
        checkpointer=checkpointer,
        sinks=[] if sink is None else [sink],
        hooks=hooks,
        stop=stop,
        derive={"bits": lambda values: values["loss"] / math.log(2)},
        tokens_per_step=48,
        flops_per_step=1e6,
        peak_flops=1e9,
    )
    return trainer.run()


def reproducible(sink: MemorySink) -> str:
    return json.dumps([record for record in sink.records if record[1] not in ("speed", "goodput")])


def bits(tree: object) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


class KillError(BaseException):
    """Stands for the end of the process: nothing may be done about it."""


class Killer:
    """Ends the process at the n-th call of anything that the trainer is given."""

    def __init__(self, at: int) -> None:
        self.left = at

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KillError

    def on_step(self, step: int, /) -> None:
        self.tick()


class KilledBatches(MemoryBatches):
    killer: Killer

    def __next__(self) -> HostBatch:
        self.killer.tick()
        return super().__next__()

    def set_state(self, state: bytes, /) -> None:
        self.killer.tick()
        super().set_state(state)


class KilledSink(MemorySink):
    killer: Killer

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        self.killer.tick()
        super().write(step, name, values)
        self.killer.tick()

    def rewind(self, step: int, /) -> None:
        self.killer.tick()
        super().rewind(step)
        self.killer.tick()


class KilledCheckpointer(MemoryCheckpointer):
    killer: Killer

    def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None:
        self.killer.tick()
        super().save(step, arrays, blobs)
        self.killer.tick()


def killed_run(
    killer: Killer,
    sink: KilledSink,
    checkpointer: KilledCheckpointer,
    model: BigramModel,
    changes: Mapping[str, Any],
    *,
    at_start: bool,
) -> Result[BigramParams]:
    """A process of its own, as far as the trainer can tell: new batches, and what earlier ones stored."""
    batches = KilledBatches(BATCHES)
    sink.killer = checkpointer.killer = batches.killer = killer

    def held_out() -> Iterator[HostBatch]:
        for batch in HELD_OUT:
            killer.tick()
            yield batch

    evaluators = {"valid": Evaluator(held_out, at_start=at_start)}
    return train(checkpointer, sink, batches=batches, evaluators=evaluators, hooks=(killer,), model=model, **changes)


def killed_at_every_moment(
    model: BigramModel, *, stride: int = 1, at_start: bool = False, **changes: object
) -> tuple[Result[BigramParams], MemorySink, int]:
    """A run, its sink, and at how many moments, or each ``stride``-th, one like it was killed and went on to the same end."""
    expected = KilledSink()
    last = killed_run(Killer(0), expected, KilledCheckpointer(), model, changes, at_start=at_start)
    moments = 0
    while True:
        sink, checkpointer = KilledSink(), KilledCheckpointer()
        try:
            killed_run(Killer(moments + 1), sink, checkpointer, model, changes, at_start=at_start)
        except KillError:
            moments += stride
        else:
            return last, expected, moments
        result = killed_run(Killer(0), sink, checkpointer, model, changes, at_start=at_start)
        assert reproducible(sink) == reproducible(expected), f"killed at {moments}"
        assert bits(result.state) == bits(last.state), f"killed at {moments}"
