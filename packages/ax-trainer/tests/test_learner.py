"""The learner against optax's own AdamW, number for number."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import Learner, Trainer, decay_mask
from ax_trainer.testing import ArraySpec, BigramModel, MemoryBatches, MemorySink, SingleDevice, bigram_batches

SCHEDULE = {"init_value": 0.0, "peak_value": 2e-2, "warmup_steps": 4, "decay_steps": 20}
MASK = {"embedding": True, "bias": False, "head": True}


@pytest.mark.parametrize("clip_norm", [0.3, 1e6])
def test_equals_clip_and_adamw_of_optax(clip_norm: float) -> None:
    theirs = optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.adamw(optax.warmup_cosine_decay_schedule(**SCHEDULE), b1=0.9, b2=0.95, weight_decay=0.1, mask=MASK),
    )
    model = BigramModel()
    ours = Learner.Config(
        schedule=config_for(optax.warmup_cosine_decay_schedule)(**SCHEDULE), clip_norm=clip_norm, weight_decay=0.1
    )
    optimizer = optax.with_extra_args_support(ours.build().for_specs(model.specs()))
    params = model.init(jax.random.key(0))
    states = [theirs.init(params), optimizer.init(params)]

    @jax.jit
    def step(params: object, states: list[object], grads: object) -> tuple[object, object, list[object]]:
        with jax.numpy_dtype_promotion("standard"):  # optax needs it
            want, state = theirs.update(grads, states[0], params)
            got, mine = optimizer.update(grads, states[1], params, grad_norm=optax.tree.norm(grads))
            return want, got, [state, mine]

    random = np.random.default_rng(0)
    for _ in range(10):
        grads = {name: jnp.asarray(random.standard_normal(p.shape), jnp.float32) for name, p in params.items()}
        want, got, states = step(params, states, grads)
        for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
            np.testing.assert_array_equal(a, b)
        params = {name: p + 0.1 for name, p in params.items()}


def test_reports_the_learning_rate_and_the_norm_before_clipping() -> None:
    sink = MemorySink()
    cfg = Trainer.Config(
        num_steps=6,
        optimizer=Learner.Config(
            schedule=config_for(optax.warmup_cosine_decay_schedule)(**SCHEDULE), clip_norm=1e-3, weight_decay=0.1
        ),
    )
    batches = MemoryBatches(bigram_batches(3))
    Trainer(cfg, model=BigramModel(), partitioner=SingleDevice(), batches=batches, sinks=[sink]).run()
    rates = optax.warmup_cosine_decay_schedule(**SCHEDULE)
    want = [float(rates(n)) for n in range(6)]
    np.testing.assert_allclose(list(sink.history("train", "learning_rate").values()), want, rtol=1e-6)
    assert all(norm > 0.1 for norm in sink.history("train", "grad_norm").values())


@dataclass(frozen=True)
class SpecWithOpinion:
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    weight_decay: bool
    dtype: np.dtype


def test_what_decays_is_read_from_the_specs() -> None:
    specs = {
        "matrix": ArraySpec((3, 4), ("embed", "mlp")),
        "bias": ArraySpec((4,), ("mlp",)),
        "stacked matrices": ArraySpec((2, 3, 4), ("layers", "embed", "mlp")),
        "stacked norms": ArraySpec((2, 4), ("layers", "embed")),
        "bias of heads": SpecWithOpinion((2, 4), ("heads", None), False, np.dtype(np.float32)),
        "vector that decays": SpecWithOpinion((4,), ("embed",), True, np.dtype(np.float32)),
    }
    decaying = {"matrix", "stacked matrices", "vector that decays"}
    assert decay_mask(specs) == {name: name in decaying for name in specs}
    assert decay_mask(specs["stacked norms"], stacking_axes=()) is True


def test_without_weight_decay_or_clipping_nothing_of_them_is_in_the_chain() -> None:
    cfg = Learner.Config(schedule=config_for(optax.constant_schedule)(value=0.5), rule=config_for(optax.identity)())
    optimizer = cfg.build().for_specs(ArraySpec((2,), ("embed",)))
    updates, _ = optimizer.update(jnp.array([1.0, 2.0]), optimizer.init(jnp.zeros(2)), jnp.zeros(2))
    np.testing.assert_array_equal(np.asarray(updates), [-0.5, -1.0])
