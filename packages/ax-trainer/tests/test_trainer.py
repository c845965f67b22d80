"""The loop: its numbers against a hand-written one, and what it promises about stopping and going on."""

import math
import time
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import Budget, CheckpointError, EarlyStop, Evaluator, Learner, ParameterAverage, Result
from ax_trainer.protocols import Batch, HostBatch, Metrics
from ax_trainer.testing import BigramModel, BigramParams, MemoryBatches, MemoryCheckpointer, MemorySink
from runs import BATCHES, HELD_OUT, STEPS, StopAt, bits, killed_at_every_moment, reproducible, train


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


def test_killed_at_any_moment_it_goes_on_bit_for_bit() -> None:
    _, _, moments = killed_at_every_moment(BigramModel(), num_steps=4, evaluate_every=2, checkpoint_every=2)
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


def test_other_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="checkpoint_every must be at least 1, got 0"):
        train(checkpoint_every=0)
    with pytest.raises(ValueError, match="can't be called 'speed'"):
        train(evaluators={"speed": Evaluator(lambda: HELD_OUT)})
    with pytest.raises(ValueError, match="'valid': every must be at least 1, got 0"):
        train(evaluators={"valid": Evaluator(lambda: HELD_OUT, every=0)})
    with pytest.raises(ValueError, match=r"early stop watches the evaluator 'test'; there are \['valid'\]"):
        train(early_stop=EarlyStop.Config(evaluator="test"))
    with pytest.raises(ValueError, match=r"watches 'acuracy' of 'valid', which reports only \['accuracy', 'loss'\]"):
        train(early_stop=EarlyStop.Config(evaluator="valid", metric="acuracy"))


def test_evaluators_have_schedules_of_their_own() -> None:
    sink = MemorySink()
    evaluators = {
        "often": Evaluator(lambda: HELD_OUT, every=2, at_start=True),
        "seldom": Evaluator(lambda: HELD_OUT[:1], every=5),
        "usual": Evaluator(lambda: HELD_OUT[:1]),
        "first": Evaluator(lambda: HELD_OUT, max_batches=1, every=100),
    }
    train(None, sink, evaluators=evaluators, num_steps=7, evaluate_every=3)
    assert list(sink.history("often")) == [0, 2, 4, 6, 7]
    assert list(sink.history("seldom")) == [5, 7]
    assert list(sink.history("usual")) == [3, 6, 7]
    assert sink.history("first") == {7: sink.history("usual")[7]}


def test_metrics_are_written_at_intervals_and_losses_judged_between(
    uninterrupted: tuple[Result[BigramParams], MemorySink],
) -> None:
    sink = MemorySink()
    result = train(None, sink, log_every=5)
    written = sink.history("train", "accuracy")
    assert list(written) == [4, 5, 8, 10, 12]  # evaluations are at multiples of 4
    assert written.items() <= uninterrupted[1].history("train", "accuracy").items()
    assert bits(result.state) == bits(uninterrupted[0].state)


def test_details_are_of_chosen_steps_and_change_nothing(
    uninterrupted: tuple[Result[BigramParams], MemorySink],
) -> None:
    sink = MemorySink()
    result = train(None, sink, details_every=5)
    norms = sink.history("details", "grad_norm/head")
    assert list(norms) == [5, 10]
    whole = [sink.history("details", f"grad_norm/{name}")[5] ** 2 for name in ("embedding", "bias", "head")]
    np.testing.assert_allclose(sum(whole) ** 0.5, sink.history("train", "grad_norm")[5], rtol=1e-6)
    assert sink.history("train").keys() == uninterrupted[1].history("train").keys()
    assert all(
        values.keys() == {"loss", "accuracy", "grad_norm", "num_targets", "bits"} for values in train_records(sink)
    )
    np.testing.assert_allclose(sink.history("train")[12], uninterrupted[1].history("train")[12], rtol=1e-6)
    assert result.step == STEPS


def train_records(sink: MemorySink) -> list[dict[str, float]]:
    return [values for _, group, values in sink.records if group == "train"]


def test_averaged_parameters_are_evaluated_where_asked(uninterrupted: tuple[Result[BigramParams], MemorySink]) -> None:
    sink = MemorySink()
    schedule = config_for(optax.constant_schedule)(value=0.1)
    never = ParameterAverage.Config(decay=config_for(optax.constant_schedule)(value=1.0))
    evaluators = {
        "last": Evaluator(lambda: HELD_OUT, at_start=True),
        "average": Evaluator(lambda: HELD_OUT, averaged=True),
    }
    train(None, sink, evaluators=evaluators, num_steps=2, optimizer=Learner.Config(schedule=schedule, average=never))
    assert sink.history("average")[2] == sink.history("last")[0] != sink.history("last")[2]
    with pytest.raises(ValueError, match="holds no average"):
        train(evaluators=evaluators, num_steps=2)


def test_training_that_gets_no_better_ends(uninterrupted: tuple[Result[BigramParams], MemorySink]) -> None:
    early_stop = EarlyStop.Config(evaluator="valid", metric="accuracy", mode="max", patience=2, min_delta=2.0)
    evaluators = {"valid": Evaluator(lambda: HELD_OUT), "other": Evaluator(lambda: HELD_OUT, every=100)}
    whole, sink, checkpointer = MemorySink(), MemorySink(), MemoryCheckpointer()
    run = partial(train, early_stop=early_stop, evaluate_every=2, evaluators=evaluators)
    result = run(None, whole)
    assert (result.step, result.why) == (6, "plateau")  # best at 2, missed at 4 and 6
    assert list(whole.history("other")) == [6]
    run(checkpointer, sink, stop=StopAt(5))
    for _ in range(2):  # it goes on to the same end, and then is at it
        resumed = run(checkpointer, sink)
        assert (resumed.step, resumed.why) == (6, "plateau")
    assert reproducible(sink) == reproducible(whole)


def test_tokens_and_epochs_end_the_training_at_the_same_step_after_a_stop() -> None:
    for limits, why, step in (
        (Budget.Config(max_tokens=48 * 5), "tokens", 5),
        (Budget.Config(max_tokens=48 * 5 + 1), "tokens", 6),
        (Budget.Config(max_epochs=1), "epochs", 7),
        (Budget.Config(max_epochs=1.1, max_tokens=1e9), "epochs", 8),
    ):
        checkpointer = MemoryCheckpointer()
        train(checkpointer, stop=StopAt(4), evaluators={}, budget=limits)
        for _ in range(2):
            result = train(checkpointer, evaluators={}, budget=limits)
            assert (result.step, result.why) == (step, why)


def test_seconds_are_those_of_the_run_over_its_restarts() -> None:
    class Slow(MemoryBatches):
        def __next__(self) -> HostBatch:
            time.sleep(0.2)
            return super().__next__()

    checkpointer, sink = MemoryCheckpointer(), MemorySink()
    first = train(checkpointer, sink, stop=StopAt(1), budget=Budget.Config(max_seconds=1e6))
    assert first.why == "stopped"
    limits = Budget.Config(max_seconds=first.metrics["goodput"]["seconds"] + 0.3)
    second = train(checkpointer, sink, batches=Slow(BATCHES), budget=limits)
    assert second.why == "seconds"
    assert second.step < 5
    assert second.step in sink.history("valid")
    third = train(checkpointer, sink, batches=Slow(BATCHES), budget=limits)
    assert (third.step, third.why) == (second.step, "seconds")


def test_hooks_hear_of_start_and_end() -> None:
    class Hearing:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def on_start(self, step: int, /) -> None:
            self.heard.append(f"start {step}")

        def on_step(self, step: int, /) -> None:
            self.heard.append(f"step {step}")

        def on_end(self, step: int, /) -> None:
            self.heard.append(f"end {step}")

    hook, checkpointer = Hearing(), MemoryCheckpointer()
    train(checkpointer, evaluators={}, hooks=[hook], num_steps=2)
    train(checkpointer, evaluators={}, hooks=[hook], num_steps=3)
    train(checkpointer, evaluators={}, hooks=[hook], num_steps=3)
    assert hook.heard == ["start 0", "step 1", "step 2", "end 2", "start 2", "step 3", "end 3"]


def test_every_second_of_a_run_and_of_its_restarts_is_accounted_for() -> None:
    class Slow(MemoryBatches):
        def __next__(self) -> HostBatch:
            time.sleep(0.05)
            return super().__next__()

    class Killing:
        def on_step(self, step: int, /) -> None:
            if step == 6:
                raise KeyboardInterrupt

    checkpointer, sink, begun = MemoryCheckpointer(), MemorySink(), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        train(checkpointer, sink, batches=Slow(BATCHES), evaluators={}, num_steps=7, hooks=[Killing()])
    time.sleep(0.1)
    result = train(checkpointer, sink, batches=Slow(BATCHES), evaluators={}, num_steps=7)
    took = time.monotonic() - begun
    goodput = result.metrics["goodput"]
    seconds = {name: value for name, value in goodput.items() if name.endswith("_seconds")}
    assert goodput["seconds"] == pytest.approx(sum(seconds.values()))
    assert goodput["seconds"] == pytest.approx(took, abs=0.5)
    assert goodput["share"] == pytest.approx(seconds["step_seconds"] / goodput["seconds"])
    # Each batch is waited for 0.05 s; those of steps 4 to 6 went down with the first process.
    assert seconds["input_seconds"] > 0.2
    assert seconds["down_seconds"] > 0.1
    assert seconds["lost_seconds"] > 0  # step 4 was written, and is done again
