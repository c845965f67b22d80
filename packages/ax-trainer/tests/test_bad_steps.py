"""Bad steps: what the policy says of numbers, and what the loop does about it."""

import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import cast

import jax
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import BadStepError, BadSteps, CorruptionError, Learner, LossSpike, NonFiniteError, SkipNonFinite
from ax_trainer.protocols import Tree
from ax_trainer.testing import MemoryBatches, MemoryCheckpointer, MemorySink
from runs import BAD, BATCHES, ByRows, Poisoned, bits, killed_at_every_moment, train


def without(*indices: int) -> MemoryBatches:
    return MemoryBatches([batch for index, batch in enumerate(BATCHES) if index not in indices], repeat=False)


def test_by_default_a_loss_that_is_no_number_ends_the_run_and_is_never_saved() -> None:
    sink, checkpointer = MemorySink(), MemoryCheckpointer()
    with pytest.raises(NonFiniteError, match=r"train: loss is nan at step 5\b"):
        train(checkpointer, sink, model=Poisoned(), checkpoint_every=1, evaluators={})
    assert checkpointer.latest() == 4
    assert list(sink.history("train")) == [1, 2, 3, 4]
    assert sink.history("events", "stop") == {5: 1.0}


def test_the_documents_of_a_bad_batch_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(NonFiniteError), caplog.at_level(logging.WARNING, "ax_trainer"):
        train(model=Poisoned(), evaluators={})
    (record,) = caplog.records
    assert record.getMessage() == ("train: loss is nan at step 5; training stops; its batch is\n  batch 4")


def test_going_back_is_training_without_the_batches_since_the_checkpoint() -> None:
    sink, checkpointer = MemorySink(), MemoryCheckpointer()
    result = train(
        checkpointer,
        sink,
        model=Poisoned(),
        evaluators={},
        num_steps=5,
        batches=MemoryBatches(BATCHES, repeat=False),
        bad_steps=BadSteps.Config(on_non_finite="rewind"),
    )
    # Step 3 is saved; the batch of step 4 is forgotten, that of step 5 is bad, those of 6 and 7 make steps 4 and 5.
    expected = MemorySink()
    clean = train(None, expected, model=Poisoned(), evaluators={}, num_steps=5, batches=without(3, BAD))
    assert result.step == clean.step == 5
    assert sink.history("train") == expected.history("train")
    assert bits(result.state) == bits(clean.state)
    (event,) = [record for record in sink.records if record[1] == "events"]
    assert event[0] == 4
    assert event[2].keys() == {"rewind", "from_step", "to_step", "loss", "grad_norm"}
    assert (event[2]["from_step"], event[2]["to_step"]) == (5, 3)


def test_without_a_checkpoint_going_back_is_to_the_beginning() -> None:
    bad_steps = BadSteps.Config(on_non_finite="rewind")
    batches = MemoryBatches(BATCHES, repeat=False)
    result = train(model=Poisoned(), evaluators={}, num_steps=2, batches=batches)
    later = train(
        model=Poisoned(), evaluators={}, num_steps=12, batches=MemoryBatches(BATCHES, repeat=False), bad_steps=bad_steps
    )
    clean = train(model=Poisoned(), evaluators={}, num_steps=12, batches=without(0, 1, 2, 3, BAD))
    assert (later.step, later.why) == (2, "data")
    assert bits(later.state) == bits(clean.state) != bits(result.state)


def test_killed_at_any_moment_a_run_that_goes_back_repeats_itself() -> None:
    _, sink, moments = killed_at_every_moment(
        Poisoned(),
        stride=11,
        at_start=True,
        num_steps=6,
        evaluate_every=4,
        checkpoint_every=3,
        bad_steps=BadSteps.Config(on_non_finite="rewind", spike=LossSpike.Config(min_losses=2, deviations=50.0)),
    )
    assert [step for step, group, _ in sink.records if group == "events"] == [4]
    assert moments > 55


def test_a_loss_far_above_those_before_is_a_spike() -> None:
    sink = MemorySink()
    run = partial(train, model=Poisoned(30.0), evaluators={}, num_steps=6)
    spike = LossSpike.Config(min_losses=4, deviations=10.0)
    run(None, sink, bad_steps=BadSteps.Config(spike=spike, on_spike="note"))
    losses = sink.history("train")
    before = [losses[step] for step in range(1, 5)]
    (event,) = [values for step, group, values in sink.records if group == "events" and step == 5]
    assert event["note"] == 1.0
    assert event["loss"] == losses[5]
    np.testing.assert_allclose(event["deviations"], (losses[5] - np.mean(before)) / np.std(before), rtol=1e-12)
    with pytest.raises(
        BadStepError, match=r"loss is .* at step 5, .* standard deviations above those before"
    ) as caught:
        run(bad_steps=BadSteps.Config(spike=spike, on_spike="stop"))
    assert not isinstance(caught.value, NonFiniteError)


def test_a_run_that_needs_ever_more_interventions_stops() -> None:
    always = MemoryBatches([BATCHES[BAD]])
    bad_steps = BadSteps.Config(on_non_finite="rewind", max_interventions=3)
    with pytest.raises(NonFiniteError, match=r"3 of the last 1000 steps were skipped or gone back from"):
        train(model=Poisoned(), batches=always, evaluators={}, bad_steps=bad_steps)


def test_a_step_that_the_optimizer_skipped_is_noted_and_counts() -> None:
    policy = BadSteps(BadSteps.Config(max_interventions=2, within_steps=10))
    skipped = {"loss": math.nan, "grad_norm": math.nan, "skipped": 1.0}
    assert policy.judge(1, {"loss": 1.0, "grad_norm": 1.0, "skipped": 0.0}) is None
    for step, action in ((2, "skip"), (3, "skip"), (4, "stop"), (12, "skip")):
        verdict = policy.judge(step, skipped)
        assert verdict is not None
        assert verdict.action == action


def test_what_it_remembers_survives_a_checkpoint() -> None:
    cfg = BadSteps.Config(on_non_finite="rewind", spike=LossSpike.Config(window=3, min_losses=2))
    policy, other = BadSteps(cfg), BadSteps(cfg)
    for step, loss in enumerate((4.0, 3.0, 2.0, math.inf, 2.5)):
        policy.judge(step, {"loss": loss})
    assert policy.memory == {"losses": [3.0, 2.0, 2.5], "interventions": [3]}
    other.restore(policy.memory)
    assert other.memory == policy.memory
    other.go_back(None)
    assert other.memory == {"losses": [], "interventions": [3]}


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="max_interventions must be at least 1, got 0"):
        BadSteps(BadSteps.Config(max_interventions=0))
    with pytest.raises(ValueError, match="min_losses must be from 2 to window, got 9 and 8"):
        LossSpike(LossSpike.Config(min_losses=9, window=8))


def test_a_step_that_the_optimizer_skips_is_an_event_and_names_its_documents(caplog: pytest.LogCaptureFixture) -> None:
    schedule = config_for(optax.constant_schedule)(value=0.1)
    sink = MemorySink()
    with caplog.at_level(logging.WARNING, "ax_trainer"):
        train(
            None,
            sink,
            model=Poisoned(),
            evaluators={},
            num_steps=7,
            optimizer=Learner.Config(schedule=schedule, skip=(SkipNonFinite.Config(),)),
        )
    assert [step for step, group, _ in sink.records if group == "events"] == [5]
    assert sink.history("train", "skipped") == {step: float(step == 5) for step in range(1, 8)}
    assert math.isfinite(sink.history("train")[6])
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "the update of step 5 was skipped; training goes on without it; its batch is\n  batch 4"
    )


class Flipping(MemoryCheckpointer):
    """Restores copies of a bias of which that on one device has a bit flipped."""

    def restore(self, step: int, abstract: Tree, /) -> tuple[Tree, Mapping[str, bytes]]:
        tree, blobs = super().restore(step, abstract)

        def flip(path: tuple[object, ...], leaf: jax.Array) -> jax.Array:
            if jax.tree_util.keystr(path, simple=True, separator="/") != "params/bias":
                return leaf
            copies = []
            for shard in leaf.addressable_shards:
                copy = np.array(shard.data)
                if shard.device == jax.devices()[3]:
                    copy.view(np.uint32)[2] ^= 1 << 20
                copies.append(jax.device_put(copy, shard.device))
            return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, copies)

        return cast("Tree", jax.tree_util.tree_map_with_path(flip, tree)), blobs


def test_a_flipped_bit_is_found_before_it_is_saved_and_the_device_named() -> None:
    checkpointer, sink = Flipping(), MemorySink()
    run = partial(train, checkpointer, sink, partitioner=ByRows(jax.devices()), evaluators={}, compare_copies_every=2)
    assert run(num_steps=3).step == 3
    with pytest.raises(
        CorruptionError, match=rf"(?s)at step 4 .*params/bias.* is wrong on {jax.devices()[3]} of process 0"
    ):
        run(num_steps=6)
    assert list(checkpointer.steps) == [3]
    assert sink.history("events", "corruption")[4] >= 1
