"""The step and its state: where arrays lie, donation, and one device against eight."""

import contextlib

import jax
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import Learner, Trainer, abstract_state, compile_step, init_state, lower_step
from ax_trainer.protocols import Batch, HostBatch, Metrics, Optimizer, SupportsCompilerOptions
from ax_trainer.testing import (
    ArraySpec,
    BigramModel,
    BigramParams,
    MemoryBatches,
    MemoryCheckpointer,
    MemorySink,
    SingleDevice,
    bigram_batches,
    check_partitioner,
    check_state_updates,
)

P = jax.sharding.PartitionSpec
BATCHES = bigram_batches(4)


class FullySharded:
    """Splits each parameter's "embed" dim and the batch over all eight devices."""

    def __init__(self) -> None:
        self._mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def shardings(self, specs: object, /) -> object:
        def place(spec: ArraySpec) -> jax.sharding.Sharding:
            return jax.NamedSharding(self._mesh, P(*("data" if axis == "embed" else None for axis in spec.axes)))

        return jax.tree.map(place, specs)

    def replicated(self) -> jax.sharding.Sharding:
        return jax.NamedSharding(self._mesh, P())

    def put(self, batch: HostBatch, /) -> Batch:
        return {name: jax.device_put(x, jax.NamedSharding(self._mesh, P("data"))) for name, x in batch.items()}

    def activate(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def described(batch: HostBatch) -> dict[str, jax.ShapeDtypeStruct]:
    sharding = SingleDevice().replicated()
    return {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding) for name, x in batch.items()}


def learner() -> Optimizer:
    cfg = Learner.Config(
        schedule=config_for(optax.constant_schedule)(value=1e-2),
        clip_norm=1.0,
        weight_decay=0.1,
    )
    return cfg.build().for_specs(BigramModel().specs())


def partitioned() -> Optimizer:
    labels = {"embedding": "matrix", "bias": "vector", "head": "matrix"}
    made: Optimizer = optax.partition({"matrix": optax.adam(1e-2), "vector": optax.sgd(1e-2, momentum=0.9)}, labels)
    return made


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adamw(1e-2),
        optax.sgd(1e-2),
        optax.adafactor(1e-2, min_dim_size_to_factor=2),
        optax.lion(1e-3),
        partitioned(),
        learner(),
    ],
    ids=["adamw", "sgd", "adafactor", "lion", "partition", "learner"],
)
def test_the_described_state_is_the_state(optimizer: Optimizer) -> None:
    model, partitioner = BigramModel(), FullySharded()
    check_partitioner(partitioner, model.specs(), BATCHES[0])
    want = abstract_state(model, optimizer, partitioner)
    state = init_state(model, optimizer, partitioner, seed=0)
    step = compile_step(model, optimizer, partitioner, describe(partitioner.put(BATCHES[0])))
    stepped, _ = step(init_state(model, optimizer, partitioner, seed=0), partitioner.put(BATCHES[0]))
    for got in (state, stepped):
        structures: tuple[object, object] = (jax.tree.structure(got), jax.tree.structure(want))
        assert structures[0] == structures[1]
        for leaf, spec in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert (leaf.shape, leaf.dtype, leaf.sharding) == (spec.shape, spec.dtype, spec.sharding)


def describe(batch: Batch) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for name, x in batch.items()}


def test_what_mirrors_a_parameter_lies_where_it_lies() -> None:
    state = init_state(BigramModel(), optax.adamw(1e-2), FullySharded(), seed=0)
    moments = optax.tree.get(state.opt_state, "mu")
    assert moments["head"].sharding.spec == P("data", None)
    assert moments["head"].addressable_shards[0].data.shape == (1, 17)
    assert optax.tree.get(state.opt_state, "count").sharding.is_fully_replicated


@pytest.mark.parametrize("clip", [True, False])
def test_eight_devices_train_like_one(clip: bool) -> None:
    histories, states = [], []
    for partitioner in (SingleDevice(), FullySharded()):
        sink = MemorySink()
        trainer = Trainer(
            Trainer.Config(
                num_steps=8,
                optimizer=Learner.Config(
                    schedule=config_for(optax.warmup_cosine_decay_schedule)(
                        init_value=0.0, peak_value=3e-2, warmup_steps=3, decay_steps=8
                    ),
                    clip_norm=0.5 if clip else None,
                    weight_decay=0.1,
                ),
            ),
            model=BigramModel(),
            partitioner=partitioner,
            batches=MemoryBatches(BATCHES),
            sinks=[sink],
            checkpointer=MemoryCheckpointer(),
        )
        states.append(trainer.run().state)
        histories.append(sink.history("train"))
    np.testing.assert_allclose(list(histories[0].values()), list(histories[1].values()), rtol=1e-5)
    for one, eight in zip(jax.tree.leaves(states[0]), jax.tree.leaves(states[1]), strict=True):
        np.testing.assert_allclose(one, eight, rtol=1e-4, atol=1e-6)


def test_the_old_state_is_donated() -> None:
    model, optimizer, partitioner = BigramModel(), optax.adamw(1e-2), SingleDevice()
    step = compile_step(model, optimizer, partitioner, described(BATCHES[0]))
    assert step.seconds > 0
    state = init_state(model, optimizer, partitioner, seed=0)
    memory = step.executable.memory_analysis()
    assert memory is not None
    assert memory.alias_size_in_bytes >= sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    after, metrics = step(state, partitioner.put(BATCHES[0]))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert int(after.step) == 1
    assert metrics.keys() == {"loss", "accuracy", "grad_norm"}


def test_lowers_without_an_array() -> None:
    lowered = lower_step(BigramModel(), learner(), SingleDevice(), described(BATCHES[0]))
    assert "func.func public @main" in lowered.as_text()


class CountingBigram(BigramModel):
    """Keeps count of the tokens it was trained on, in a parameter that the loss uses too."""

    def specs(self) -> dict[str, ArraySpec]:
        return {**super().specs(), "count": ArraySpec((17, 1), ("vocab", None))}

    def init(self, key: jax.Array, /) -> BigramParams:
        return {**super().init(key), "count": jax.numpy.zeros((17, 1))}

    def loss_and_updates(
        self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, tuple[Metrics, jax.Array]]:
        loss, metrics = self.loss(params, batch, key=key, train=train)
        seen = jax.nn.one_hot(batch["tokens"].reshape(-1), 17, dtype=np.float32).sum(0)[:, None]
        return loss, (metrics, params["count"] + seen)

    def loss(self, params: BigramParams, batch: Batch, /, *, key: jax.Array, train: bool) -> tuple[jax.Array, Metrics]:
        shifted = {**params, "head": params["head"] + 1e-3 * params["count"].reshape(1, 17)}
        return super().loss(shifted, batch, key=key, train=train)

    def updated(self, params: BigramParams, updates: jax.Array, /) -> BigramParams:
        return {**params, "count": updates}


def test_states_are_assigned_and_neither_learnt_nor_decayed() -> None:
    model = CountingBigram()
    assert check_state_updates(model, BATCHES[0]) == ("count",)
    cfg = Learner.Config(schedule=config_for(optax.constant_schedule)(value=1e-2), clip_norm=1.0, weight_decay=0.1)
    optimizer, place = cfg.build().for_specs(model.specs()), SingleDevice()
    state = init_state(model, optimizer, place, seed=0)
    first = jax.device_get(state.params)
    step = compile_step(model, optimizer, place, described(BATCHES[0]))
    for batch in BATCHES:
        state, _ = step(state, place.put(batch))
    seen = np.bincount(np.concatenate([np.asarray(batch["tokens"]).reshape(-1) for batch in BATCHES]), minlength=17)
    np.testing.assert_array_equal(state.params["count"], seen[:, None])
    assert not np.array_equal(state.params["head"], first["head"]), "all else is learnt"


class Slow(FullySharded):
    """Has an option for the compiler."""

    def __init__(self, **options: str | bool) -> None:
        super().__init__()
        self._options = options

    @property
    def compiler_options(self) -> dict[str, str | bool]:
        return self._options


def test_the_compiler_is_told_what_the_partitioner_says() -> None:
    assert isinstance(Slow(), SupportsCompilerOptions)
    assert not isinstance(FullySharded(), SupportsCompilerOptions)
    placed = Slow().put(next(MemoryBatches(BATCHES)))
    batch = {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for name, x in placed.items()}
    compile_step(BigramModel(), learner(), Slow(xla_backend_optimization_level="0"), batch)
    with pytest.raises(Exception, match="No such compile option: 'xla_no_such_option'"):
        compile_step(BigramModel(), learner(), Slow(xla_no_such_option=True), batch)
