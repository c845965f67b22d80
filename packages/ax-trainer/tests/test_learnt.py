"""Parameters that aren't learnt: constants of the step, whatever their type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import config_for
from ax_trainer import Learner, Trainer
from ax_trainer.protocols import Batch, Metrics
from ax_trainer.testing import MemoryBatches, SingleDevice

BATCH = {"x": np.asarray([[1.0, 2.0], [3.0, -1.0]], np.float32)}


@dataclass(frozen=True)
class Hinted:
    """A spec that says whether its parameter is learnt."""

    shape: tuple[int, ...]
    dtype: np.dtype
    axes: tuple[str | None, ...]
    trainable: bool


class Adapted:
    """``x · (table + adapter)``, of which only the adapter is learnt; the table is int8."""

    def specs(self) -> dict[str, Hinted]:
        return {
            "adapter": Hinted((2, 3), np.dtype("float32"), ("in", "out"), trainable=True),
            "frozen": Hinted((3,), np.dtype("float32"), ("out",), trainable=False),
            "table": Hinted((2, 3), np.dtype("int8"), ("in", "out"), trainable=False),
        }

    def init(self, key: jax.Array, /) -> dict[str, jax.Array]:
        return {
            "adapter": jax.random.normal(key, (2, 3), jnp.float32),
            "frozen": jnp.ones(3, jnp.float32),
            "table": jnp.arange(6, dtype=jnp.int8).reshape(2, 3),
        }

    def loss(
        self, params: dict[str, jax.Array], batch: Batch, /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, Metrics]:
        y = batch["x"] @ (params["table"].astype(jnp.float32) + params["adapter"]) + params["frozen"][None]
        loss = (y**2).mean()
        return loss, {"loss": (loss, jnp.ones((), jnp.float32))}


def learner() -> Learner.Config:
    schedule = config_for(optax.constant_schedule)(value=1e-1)
    return Learner.Config(schedule=schedule, clip_norm=1.0, weight_decay=0.1)


def test_only_what_is_learnt_changes_and_has_a_state() -> None:
    model, place = Adapted(), SingleDevice()
    trainer = Trainer.Config(num_steps=5, optimizer=learner()).build(
        model=model, partitioner=place, batches=MemoryBatches([BATCH])
    )
    described = trainer.abstract_state()
    first = cast("dict[str, np.ndarray]", jax.device_get(trainer.init_state().params))
    moments = [x for x in jax.tree.leaves(described.opt_state) if x.shape]
    assert [x.shape for x in moments] == [(2, 3), (2, 3)], "two moments of the adapter"

    batch = place.put(BATCH)
    described_batch = {"x": jax.ShapeDtypeStruct((2, 2), jnp.float32, sharding=batch["x"].sharding)}
    step = trainer.compile(described_batch)
    state, metrics = step(trainer.init_state(), batch)
    after = cast("dict[str, jax.Array]", state.params)
    for name in ("table", "frozen"):
        np.testing.assert_array_equal(after[name], first[name])
        assert after[name].dtype == first[name].dtype
    assert (np.asarray(after["adapter"]) != first["adapter"]).all()

    def loss(adapter: jax.Array) -> jax.Array:
        arrays = {name: jnp.asarray(x) for name, x in BATCH.items()}
        params = {**jax.tree.map(jnp.asarray, first), "adapter": adapter}
        return model.loss(params, arrays, key=jax.random.key(0), train=True)[0]

    norm = np.linalg.norm(jax.grad(loss)(jnp.asarray(first["adapter"])))
    np.testing.assert_allclose(metrics["grad_norm"][0], norm, rtol=1e-6)
