"""What strangers wrote, at work in the place of ours: nothing of ours is changed for it."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import AnyModifier, Config, chain, config_for, describes, partial_for, replacing
from ax_config.testing import check_config, check_modifier
from ax_inference import Sampler, generate
from ax_layers import CausalLM, DenseKVCache, as_decoder, as_model, cross_entropy, dot_product_attention
from ax_mesh import Mesh
from ax_runtime.agent import run_locally
from ax_runtime.testing import StopAfter
from ax_trainer import Result, Trainer
from ax_trainer.protocols import BatchSource, Checkpointer, MetricSink, Model, Params, Partitioner, StopSignal
from ax_trainer.testing import SingleDevice

from . import fits, small
from .strangers.characters import Characters
from .strangers.counting_job import CountingJob
from .strangers.equinox_model import EquinoxModel
from .strangers.flax_model import FlaxModel
from .strangers.list_sink import ListSink
from .strangers.named_shardings import NamedShardings
from .strangers.optax_cross_entropy import optax_cross_entropy
from .strangers.optax_loop import Ending, OptaxLoop
from .strangers.plain_attention import plain_attention
from .strangers.random_windows import RandomWindows
from .strangers.recurrent_decoder import RecurrentDecoder
from .strangers.sliding_cache import SlidingCache

NUM_STEPS = 10
T = TypeVar("T")


def windows() -> RandomWindows:
    return RandomWindows(small.TEXT, batch_size=small.BATCH_SIZE, seq_length=small.SEQ_LENGTH)


def train(
    model: Model[Params],
    *,
    partitioner: Partitioner | None = None,
    batches: BatchSource | None = None,
    checkpointer: Checkpointer | None = None,
    sink: MetricSink | None = None,
    stop: StopSignal | None = None,
) -> Result[Params]:
    """Our trainer, on one device and a stranger's data unless told otherwise."""
    config = small.training()
    config.num_steps = NUM_STEPS
    trainer = Trainer(
        config,
        model=model,
        partitioner=partitioner or SingleDevice(),
        batches=batches or windows(),
        checkpointer=checkpointer,
        sinks=[sink or ListSink()],
        stop=stop,
    )
    return trainer.run()


@contextmanager
def standard_promotion() -> Iterator[None]:
    """JAX as strangers know it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_an_equinox_module_in_our_trainer() -> None:
    sink = ListSink()
    result = train(EquinoxModel(small.VOCAB_SIZE, 16), sink=sink)
    assert sink.losses()[NUM_STEPS] < sink.losses()[1] - 1.0
    assert result.state.params.mlp.layers[0].weight.shape == (16, 16)


def test_a_flax_module_in_our_trainer_is_sharded_by_flaxs_own_names() -> None:
    alone, together = ListSink(), ListSink()
    train(FlaxModel(small.VOCAB_SIZE, 16), sink=alone)
    result = train(FlaxModel(small.VOCAB_SIZE, 16), sink=together, partitioner=Mesh.Config(axes={"fsdp": 8}).build())
    (embedding, _) = jax.tree.leaves(result.state.params)
    assert embedding.sharding.shard_shape(embedding.shape) == (small.VOCAB_SIZE, 2)
    assert together.losses()[NUM_STEPS] < together.losses()[1] - 0.5
    np.testing.assert_allclose(list(together.losses().values()), list(alone.losses().values()), rtol=1e-4)


@pytest.mark.parametrize("checkpoints", fits.CHECKPOINTERS)
@pytest.mark.parametrize("data", [name for name in fits.BATCH_SOURCES if "Example" not in name])  # the model reads text
def test_our_trainer_resumes_bit_for_bit(data: str, checkpoints: str, tmp_path: Path) -> None:
    whole, parts = ListSink(), ListSink()
    model = FlaxModel(small.VOCAB_SIZE, 16)  # It draws random numbers at every step, which have to be the same ones.
    uninterrupted = train(model, batches=fits.BATCH_SOURCES[data](), sink=whole)
    for stop in (StopAfter(3), StopAfter(4), StopAfter()):
        store = fits.CHECKPOINTERS[checkpoints](tmp_path)
        result = train(model, batches=fits.BATCH_SOURCES[data](), checkpointer=store, sink=parts, stop=stop)
    assert parts.losses() == whole.losses()
    same = jax.tree.map(lambda a, b: np.array_equal(a, b), result.state, uninterrupted.state)
    assert all(jax.tree.leaves(same)), same


@pytest.fixture(scope="module")
def losses_on_one_device() -> list[float]:
    sink = ListSink()
    train(small.lm_model(), sink=sink)
    return list(sink.losses().values())


@pytest.mark.parametrize("name", fits.PLACEMENTS)
def test_our_model_is_placed_by(name: str, losses_on_one_device: list[float]) -> None:
    placement, sink = fits.PLACEMENTS[name](), ListSink()
    model = as_model(small.lm().build(vocab_size=small.VOCAB_SIZE), sharder=placement)
    result = train(model, sink=sink, partitioner=placement)
    assert not all(array.sharding.is_fully_replicated for array in jax.tree.leaves(result.state.params))
    np.testing.assert_allclose(list(sink.losses().values()), losses_on_one_device, rtol=1e-4)


def test_an_optax_loop_trains_our_model() -> None:
    with standard_promotion():
        ending = OptaxLoop(learning_rate=1e-2, num_steps=20, model=small.lm_model(), batches=windows()).run()
    assert ending.losses[-1] < ending.losses[0] - 0.5


def leaving_open(fn: Callable[..., T]) -> Callable[..., Config[T]]:
    """``config_for``, for a type checker that wants no argument: the experiment gives the others at ``build``."""
    return config_for(fn)


PLAIN_ATTENTION = replacing(describes(dot_product_attention), partial_for(plain_attention))
OPTAX_CROSS_ENTROPY = replacing(describes(cross_entropy), partial_for(optax_cross_entropy))
SLIDING_CACHE = replacing(DenseKVCache, config_for(SlidingCache)(keeps=small.SEQ_LENGTH))


@pytest.mark.parametrize(
    "modifier", [PLAIN_ATTENTION, OPTAX_CROSS_ENTROPY, SLIDING_CACHE], ids=["attention", "loss", "cache"]
)
def test_a_part_of_our_model_is_swapped_by_its_config(modifier: AnyModifier) -> None:
    """Nothing of the model changes for it: the parameters are the same, and so is what comes out."""
    check_modifier(modifier, small.lm())
    ours, theirs = (config.build(vocab_size=small.VOCAB_SIZE) for config in (small.lm(), modifier(small.lm())))
    params, tokens = ours.init(jax.random.key(0)), small.batch()["tokens"]
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, params, theirs.init(jax.random.key(0)))))
    lengths = jnp.full(len(tokens), tokens.shape[1] - 1)

    def outputs(module: CausalLM) -> tuple[jax.Array, ...]:
        batch = {name: jnp.asarray(array) for name, array in small.batch().items()}
        loss, _ = as_model(module).loss(params, batch, key=jax.random.key(0), train=True)
        decoder = as_decoder(module)
        prefilled, cache = decoder.prefill(params, batch["tokens"], lengths, decoder.init_cache(len(tokens), 16))
        decoded, _ = decoder.decode(params, batch["tokens"][:, -1], cache)
        return loss, prefilled, decoded

    for got, wanted in zip(
        jax.jit(outputs, static_argnums=0)(theirs), jax.jit(outputs, static_argnums=0)(ours), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_a_strangers_decoder_is_sampled() -> None:
    """What the plain loop draws, greedily, ours draws, for prompts of different lengths in one batch."""
    decoder, params = RecurrentDecoder(50, 8).with_params(jax.random.key(3))
    greedy = Sampler.Config(temperature=0.0).build()
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6]]
    drawn = np.stack(list(generate(decoder, params, prompts, sampler=greedy, max_new_tokens=8)), axis=1)
    for prompt, continuation in zip(prompts, drawn, strict=True):
        text = list(prompt)
        for token in continuation:
            logits, _ = decoder.prefill(
                params, jnp.asarray([text]), jnp.asarray([len(text)]), decoder.init_cache(1, len(text))
            )
            assert token == int(logits[0].argmax())
            text.append(int(token))


def test_a_strangers_job_runs_in_our_run_folder(tmp_path: Path) -> None:
    assert run_locally(CountingJob(5), tmp_path / "run", config="count to 5").finished
    assert (tmp_path / "run" / "count.txt").read_text() == "5"


def test_an_experiment_of_strangers(tmp_path: Path) -> None:
    """Our recipe with a stranger in every place that takes one: still a config tree, with a text that gives it back."""
    config = chain(PLAIN_ATTENTION, OPTAX_CROSS_ENTROPY, SLIDING_CACHE)(small.experiment())
    config.tokenizer = config_for(Characters)(string.printable)
    config.mesh = config_for(NamedShardings)()
    config.trainer = leaving_open(OptaxLoop)(learning_rate=1e-2)
    check_config(config)
    experiment = config.build()
    with standard_promotion():
        experiment.run(tmp_path, StopAfter())
    assert isinstance(experiment.outcome, Ending)
    assert experiment.outcome.losses[-1] < experiment.outcome.losses[0]
