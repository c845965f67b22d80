"""The loop: its numbers against a hand-written one, and what it promises about stopping and going on."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import CheckpointError, Evaluator, NonFiniteError, Result, Trainer
from ax_trainer.protocols import Batch, Checkpointer, Hook, HostBatch, Metrics, StopSignal
from ax_trainer.testing import (
    BigramModel,
    BigramParams,
    MemoryBatches,
    MemoryCheckpointer,
    MemorySink,
    SingleDevice,
    bigram_batches,
)

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


class StopAt:
    def __init__(self, step: int) -> None:
        self._step = step

    def should_stop(self, step: int, /) -> bool:
        return step >= self._step


def train(
    checkpointer: Checkpointer | None = None,
    sink: MemorySink | None = None,
    *,
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
        partitioner=SingleDevice(),
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


@pytest.fixture(scope="module")
def uninterrupted() -> tuple[Result[BigramParams], MemorySink]:
    sink = MemorySink()
    return train(MemoryCheckpointer(), sink), sink


def test_loss_equals_a_hand_written_loop(uninterrupted: tuple[Result[BigramParams], MemorySink]) -> None:
    model, optimizer = BigramModel(), optax.sgd(0.5, momentum=0.9)
    init_key, step_key, _ = jax.random.split(jax.random.key(3), 3)
    params = jax.jit(model.init)(init_key)
    opt_state = optimizer.init(params)

    @jax.jit
    def step(params: BigramParams, opt_state: optax.OptState, batch: Batch, key: jax.Array) -> object:
        def loss_of(params: BigramParams) -> tuple[jax.Array, Metrics]:
            return model.loss(params, batch, key=key, train=True)

        (loss, _), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        with jax.numpy_dtype_promotion("standard"):  # optax needs it
            updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss, optax.tree.norm(grads)

    losses, norms = {}, {}
    for n in range(STEPS):
        batch = {name: jnp.asarray(array) for name, array in BATCHES[n % len(BATCHES)].items()}
        params, opt_state, loss, norm = step(params, opt_state, batch, jax.random.fold_in(step_key, n))
        losses[n + 1], norms[n + 1] = float(loss), float(norm)

    result, sink = uninterrupted
    assert sink.history("train") == losses
    assert sink.history("train", "grad_norm") == norms
    assert bits(result.state.params) == bits(params)
    assert bits(result.state.opt_state) == bits(opt_state)


def test_learns(uninterrupted: tuple[Result[BigramParams], MemorySink]) -> None:
    losses = train(num_steps=150, evaluate_every=None).metrics
    assert losses["train"]["loss"] < 1.7 < uninterrupted[1].history("train")[1]
    assert losses["valid"]["accuracy"] > 0.7


def test_evaluation_combines_batches_by_weight(uninterrupted: tuple[Result[BigramParams], MemorySink]) -> None:
    result, sink = uninterrupted
    model = BigramModel()
    pairs = [
        model.loss(
            result.state.params, {k: jnp.asarray(v) for k, v in batch.items()}, key=jax.random.key(0), train=False
        )
        for batch in HELD_OUT
    ]
    losses = np.array([float(loss) for loss, _ in pairs])
    weights = np.array([float(metrics["loss"][1]) for _, metrics in pairs])
    assert weights[-1] != weights[0]
    assert sink.history("valid").keys() == {4, 8, 12}
    np.testing.assert_allclose(sink.history("valid")[12], (losses * weights).sum() / weights.sum(), rtol=1e-6)


def test_derived_values_and_speed_are_reported(uninterrupted: tuple[Result[BigramParams], MemorySink]) -> None:
    result, sink = uninterrupted
    assert result.metrics["valid"]["bits"] == result.metrics["valid"]["loss"] / math.log(2)
    assert result.metrics["train"]["num_targets"] == 40
    assert result.metrics["speed"].keys() == {"step_seconds", "tokens_per_second", "mfu"}
    first = next(values for step, group, values in sink.records if group == "speed")
    assert first.keys() == {"compile_seconds", "compile_cached"}  # conftest.py has a cache


def test_evaluation_leaves_no_trace_in_the_training(uninterrupted: tuple[Result[BigramParams], MemorySink]) -> None:
    sink = MemorySink()
    result = train(None, sink, evaluators={}, evaluate_every=1)
    assert sink.history("train") == uninterrupted[1].history("train")
    assert bits(result.state) == bits(uninterrupted[0].state)


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


def killed_run(killer: Killer, sink: KilledSink, checkpointer: KilledCheckpointer) -> Result[BigramParams]:
    """A process of its own, as far as the trainer can tell: new batches, and what earlier ones stored."""
    batches = KilledBatches(BATCHES)
    sink.killer = checkpointer.killer = batches.killer = killer

    def held_out() -> Iterator[HostBatch]:
        for batch in HELD_OUT:
            killer.tick()
            yield batch

    evaluators = {"valid": Evaluator(held_out)}
    return train(
        checkpointer,
        sink,
        batches=batches,
        evaluators=evaluators,
        hooks=(killer,),
        num_steps=4,
        evaluate_every=2,
        checkpoint_every=2,
    )


def test_killed_at_any_moment_it_goes_on_bit_for_bit() -> None:
    expected = KilledSink()
    last = killed_run(Killer(0), expected, KilledCheckpointer())
    moments = 0
    while True:
        sink, checkpointer = KilledSink(), KilledCheckpointer()
        try:
            killed_run(Killer(moments + 1), sink, checkpointer)
        except KillError:
            moments += 1
        else:
            break
        result = killed_run(Killer(0), sink, checkpointer)
        assert reproducible(sink) == reproducible(expected), f"killed at {moments}"
        assert bits(result.state) == bits(last.state), f"killed at {moments}"
    assert moments > 35


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_stops_and_goes_on_bit_for_bit(step: int, uninterrupted: tuple[Result[BigramParams], MemorySink]) -> None:
    sink, checkpointer = MemorySink(), MemoryCheckpointer()
    stopped = train(checkpointer, sink, stop=StopAt(step))
    assert (stopped.step, stopped.why) == (step, "finished" if step == STEPS else "stopped")
    assert checkpointer.latest() == step
    assert sink.closed
    result = train(checkpointer, sink)
    assert (result.step, result.why) == (STEPS, "finished")
    assert reproducible(sink) == reproducible(uninterrupted[1])
    assert bits(result.state) == bits(uninterrupted[0].state)


def test_saves_at_multiples_and_at_the_end() -> None:
    checkpointer = MemoryCheckpointer()
    train(checkpointer, num_steps=5)
    assert list(checkpointer.steps) == [3, 5]


def test_the_end_of_the_data_saves_and_says_so() -> None:
    checkpointer = MemoryCheckpointer()
    for _ in range(2):
        result = train(checkpointer, batches=MemoryBatches(BATCHES, repeat=False))
        assert (result.step, result.why) == (len(BATCHES), "data")
        assert checkpointer.latest() == len(BATCHES)
    longer = train(checkpointer, batches=MemoryBatches(BATCHES * 2, repeat=False))
    assert longer.why == "finished"


def test_no_data_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="no batch at all"):
        train(batches=MemoryBatches([]))
    with pytest.raises(ValueError, match="'valid' gave no batch at step 4"):
        train(evaluators={"valid": Evaluator(list)})


def test_a_batch_of_another_shape_is_a_clear_error() -> None:
    with pytest.raises(ValueError, match=r"(?s)tokens int32\[8, 6\].*but this one is.*tokens int32\[3, 6\]"):
        train(batches=MemoryBatches([BATCHES[0], HELD_OUT[-1]]))


class LoggedSink(MemorySink):
    """Writes its events into a log that it shares with others."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        if name not in ("speed", "goodput"):
            self.log.append(f"{name} {step}")

    def rewind(self, step: int, /) -> None:
        self.log.append(f"rewind {step}")

    def close(self) -> None:
        self.log.append("close")


class LoggedCheckpointer(MemoryCheckpointer):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None:
        self.log.append(f"save {step}")

    def wait(self) -> None:
        self.log.append("wait")


class LoggedHook:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def on_step(self, step: int, /) -> None:
        self.log.append(f"step {step}")


def test_order_of_events_and_the_lag_of_metrics() -> None:
    log: list[str] = []
    train(LoggedCheckpointer(log), LoggedSink(log), hooks=(LoggedHook(log),), num_steps=4)
    assert log == [
        "rewind -1",
        *["step 1", "step 2", "train 1", "step 3", "train 2", "train 3", "save 3"],
        *["step 4", "train 4", "valid 4", "save 4", "wait", "close"],
    ]


class FullDisk(MemoryCheckpointer):
    def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None:
        if step > 3:
            raise OSError(28, "No space left on device")
        super().save(step, arrays, blobs)


def test_a_full_disk_is_a_clear_error() -> None:
    sink, checkpointer = MemorySink(), FullDisk()
    with pytest.raises(CheckpointError, match=r"at step 6 .*No space left on device.*from the newest checkpoint"):
        train(checkpointer, sink)
    assert checkpointer.latest() == 3
    assert sink.closed


def test_an_exception_passes_after_the_sinks_are_closed() -> None:
    class Interrupting:
        def on_step(self, step: int, /) -> None:
            if step == 2:
                raise KeyboardInterrupt

    sink = MemorySink()
    with pytest.raises(KeyboardInterrupt):
        train(None, sink, hooks=(Interrupting(),))
    assert sink.closed


class Exploding(BigramModel):
    def loss(self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool) -> tuple[jax.Array, Metrics]:
        loss, metrics = super().loss(params, batch, key=key, train=train)
        loss = jnp.where(batch["tokens"][0, 0] == BATCHES[4]["tokens"][0, 0], jnp.nan, loss)
        return loss, {**metrics, "loss": (loss, metrics["loss"][1])}


def test_a_loss_that_is_no_number_names_the_step_and_is_never_saved() -> None:
    first = next(n for n, batch in enumerate(BATCHES, 1) if batch["tokens"][0, 0] == BATCHES[4]["tokens"][0, 0])
    sink, checkpointer = MemorySink(), MemoryCheckpointer()
    with pytest.raises(NonFiniteError, match=rf"loss is nan at step {first}\b"):
        train(checkpointer, sink, model=Exploding(), checkpoint_every=1, evaluators={})
    assert checkpointer.latest() == first - 1
    assert list(sink.history("train")) == list(range(1, first))


def test_other_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="checkpoint_every must be at least 1, got 0"):
        train(checkpoint_every=0)
    with pytest.raises(ValueError, match="can't be called 'speed'"):
        train(evaluators={"speed": Evaluator(lambda: HELD_OUT)})
