"""A batch in pieces gives the step that it gives whole."""

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import Trainer, compile_step, init_state, lower_step
from ax_trainer.protocols import Batch, HostBatch, Metrics
from ax_trainer.testing import (
    BigramModel,
    BigramParams,
    MemoryBatches,
    SingleDevice,
    bigram_batches,
    check_batch_statistics,
)

MODEL = BigramModel(dropout=0.0)


def uneven(seed: int = 0) -> HostBatch:
    """A batch of which most rows have few targets, and two have none."""
    (batch,) = bigram_batches(1, batch_size=8, seed=seed)
    targets = np.array(batch["targets"])
    for row in range(8):
        targets[row, row % 6 :] = -1
    return {**batch, "targets": targets}


def described(batch: HostBatch) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in batch.items()}


@pytest.mark.parametrize("num_microbatches", [2, 4, 8])
def test_pieces_weigh_as_many_targets_as_they_have(num_microbatches: int) -> None:
    optimizer, place, batch = optax.sgd(1.0), SingleDevice(), uneven()
    results = []
    for number in (1, num_microbatches):
        step = compile_step(MODEL, optimizer, place, described(batch), num_microbatches=number)
        results.append(step(init_state(MODEL, optimizer, place, seed=0), place.put(batch)))
    (whole, metrics), (pieces, metrics_of_pieces) = results
    for want, got in zip(jax.tree.leaves(whole.params), jax.tree.leaves(pieces.params), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert metrics.keys() == metrics_of_pieces.keys()
    for name, (value, weight) in metrics.items():
        np.testing.assert_allclose(metrics_of_pieces[name], (value, weight), rtol=1e-5, err_msg=name)


def test_a_batch_without_targets_gives_no_gradient() -> None:
    optimizer, place, batch = optax.sgd(1.0), SingleDevice(), uneven()
    batch = {**batch, "targets": np.full_like(batch["targets"], -1)}
    before = init_state(MODEL, optimizer, place, seed=0)
    kept = jax.device_get(before.params)
    after, metrics = compile_step(MODEL, optimizer, place, described(batch), num_microbatches=2)(
        before, place.put(batch)
    )
    jax.tree.map(np.testing.assert_array_equal, after.params, kept)
    assert float(metrics["loss"][1]) == 0


def test_each_piece_draws_its_own_dropout() -> None:
    model, optimizer, place = BigramModel(dropout=0.5), optax.sgd(1.0), SingleDevice()
    (row,) = bigram_batches(1, batch_size=1)
    twice = {name: np.concatenate([x, x]) for name, x in row.items()}

    def gradient(batch: HostBatch, num_microbatches: int) -> np.ndarray:
        state = init_state(model, optimizer, place, seed=0)
        before = np.asarray(state.params["head"])
        step = compile_step(model, optimizer, place, described(batch), num_microbatches=num_microbatches)
        after = np.asarray(step(state, place.put(batch))[0].params["head"])
        difference: np.ndarray = before - after
        return difference

    assert np.abs(gradient(twice, 2) - gradient(row, 1)).max() > 1e-3


def test_pieces_take_less_memory() -> None:
    model, optimizer, place = BigramModel(vocab_size=512, dim=64), optax.sgd(1.0), SingleDevice()
    batch = described(bigram_batches(1, batch_size=256, length=16, vocab_size=512)[0])

    def temporaries(num_microbatches: int) -> int:
        compiled = lower_step(model, optimizer, place, batch, num_microbatches=num_microbatches).compile()
        memory = compiled.memory_analysis()
        assert memory is not None
        return int(memory.temp_size_in_bytes)

    assert temporaries(8) < temporaries(1) / 4


def test_rows_that_cannot_be_divided_and_numbers_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match=r"3 microbatches can't be made of the 8 rows of the batch's 'targets'"):
        lower_step(MODEL, optax.sgd(1.0), SingleDevice(), described(uneven()), num_microbatches=3)
    config = Trainer.Config(num_steps=1, num_microbatches=0, optimizer=config_for(optax.sgd)(learning_rate=1.0))
    with pytest.raises(ValueError, match="num_microbatches must be at least 1, got 0"):
        config.build(model=MODEL, partitioner=SingleDevice(), batches=MemoryBatches([uneven()]))


class Balanced(BigramModel):
    """A loss that also wants the tokens of the whole batch to be spread: the square of how often each comes, times a weight of its own."""

    def loss(self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool) -> tuple[jax.Array, Metrics]:
        return self._loss(params, batch, self.batch_statistics(params, batch, key=key), key=key, train=train)

    def batch_statistics(self, params: BigramParams, batch: Batch, /, *, key: jax.Array) -> dict[str, jax.Array]:
        often = jax.nn.one_hot(batch["tokens"], 17, dtype=jnp.float32).mean(axis=(0, 1))
        return {"often": often, "num_targets": (batch["targets"] >= 0).sum().astype(jnp.float32)}

    def loss_and_updates_of_part(
        self, params: BigramParams, batch: Batch, statistics: dict[str, jax.Array], /, *, key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, None]]:
        loss, metrics = self._loss(params, batch, statistics, key=key, train=True)
        return loss, (metrics, None)

    def _loss(
        self, params: BigramParams, batch: Batch, whole: dict[str, jax.Array], *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, Metrics]:
        mean, metrics = super().loss(params, batch, key=key, train=train)
        rows = params["embedding"][batch["tokens"]]
        spread = (rows.sum(axis=-1) * whole["often"][batch["tokens"]]).mean()
        share = metrics["loss"][1] / jnp.maximum(whole["num_targets"], 1e-30)
        return mean * share + spread, metrics


@pytest.mark.parametrize("num_microbatches", [2, 8])
def test_what_a_loss_takes_of_the_whole_batch_is_found_out_first(num_microbatches: int) -> None:
    model, optimizer, place, batch = Balanced(dropout=0.0), optax.sgd(1.0), SingleDevice(), uneven()
    results = []
    for number, exact in ((1, False), (num_microbatches, True), (num_microbatches, False)):
        step = compile_step(
            model, optimizer, place, described(batch), num_microbatches=number, exact_microbatches=exact
        )
        state, metrics = step(init_state(model, optimizer, place, seed=0), place.put(batch))
        results.append((np.asarray(state.params["embedding"]), metrics))
    (want, metrics), (exact_, new_metrics), (each_alone, _) = results
    np.testing.assert_allclose(exact_, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new_metrics["loss"], metrics["loss"], rtol=1e-5)
    assert np.abs(each_alone - want).max() > 1e-3


def test_the_kit_for_it() -> None:
    check_batch_statistics(Balanced(dropout=0.0), uneven())

    class Forgetful(Balanced):
        def batch_statistics(self, params: BigramParams, batch: Batch, /, *, key: jax.Array) -> dict[str, jax.Array]:
            return {name: 2 * x for name, x in super().batch_statistics(params, batch, key=key).items()}

        def loss(
            self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool
        ) -> tuple[jax.Array, Metrics]:
            return BigramModel.loss(self, params, batch, key=key, train=train)

    with pytest.raises(AssertionError, match="the mean over the parts must be that of the whole batch, but is off by"):
        check_batch_statistics(Forgetful(dropout=0.0), uneven())
    with pytest.raises(AssertionError, match=r"lacks batch_statistics\(\)"):
        check_batch_statistics(MODEL, uneven())


def test_a_model_that_tells_nothing_of_a_batch() -> None:
    with pytest.raises(ValueError, match=r"BigramModel lacks batch_statistics\(\) or loss_and_updates_of_part\(\)"):
        lower_step(MODEL, optax.sgd(1.0), SingleDevice(), described(uneven()), exact_microbatches=True)
