"""Loss scaling: nothing of it shows in float32, small gradients survive in float16, and the scale finds its size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import Learner, LossScale, init_state, train_step
from ax_trainer.protocols import Batch, Metrics
from ax_trainer.testing import ArraySpec, SingleDevice


class Half:
    """``scale · x · w`` in float16, of float32 weights; the loss is float32."""

    def specs(self) -> dict[str, ArraySpec]:
        return {"w": ArraySpec((4, 2), ("in", "out"))}

    def init(self, key: jax.Array, /) -> dict[str, jax.Array]:
        return {"w": jnp.ones((4, 2))}

    def loss(
        self, params: dict[str, jax.Array], batch: Batch, /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, Metrics]:
        y = batch["x"].astype(jnp.float16) @ params["w"].astype(jnp.float16)
        loss = y.astype(jnp.float32).mean() * batch["scale"]
        return loss, {"loss": (loss, jnp.ones(()))}


def run(cfg: LossScale.Config | None, scales: list[float]) -> tuple[np.ndarray, list[dict[str, float]]]:
    """The weights after steps with batches of these scales, by gradient descent; and metrics."""
    model, place = Half(), SingleDevice()
    learner = Learner.Config(
        schedule=config_for(optax.constant_schedule)(value=1.0),
        rule=config_for(optax.identity)(),
        skip=() if cfg is None else (cfg,),
    )
    optimizer = learner.build().for_specs(model.specs())
    step, state = jax.jit(train_step(model, optimizer)), init_state(model, optimizer, place, seed=0)
    seen = []
    for scale in scales:
        batch = {"x": np.full((8, 4), 0.5, np.float32), "scale": np.asarray(scale, np.float32)}
        state, metrics = step(state, place.put(batch))
        seen.append({name: float(value) for name, (value, _) in metrics.items()})
    return np.asarray(state.params["w"]), seen


def test_small_gradients_survive() -> None:
    tiny = 2.0**-26  # of the loss; a gradient in float16 is zero below 2 ** -24
    lost, _ = run(None, [tiny])
    np.testing.assert_array_equal(lost, 1.0)
    _, metrics = run(LossScale.Config(initial=2.0**15), [tiny])
    np.testing.assert_allclose(metrics[0]["grad_norm"], np.sqrt(8) * 0.5 * tiny / 2, rtol=1e-3)
    assert metrics[0]["loss"] == pytest.approx(2.0 * tiny)


def test_it_finds_its_size() -> None:
    cfg = LossScale.Config(initial=2.0**20, growth_interval=3)
    weights, metrics = run(cfg, [1.0] * 12)
    skipped = [each["skipped"] for each in metrics]
    assert skipped[0] == 1, "2 ** 20 / 16 is no float16"
    assert metrics[1]["loss_scale"] == 2.0**19
    first = skipped.index(0)
    assert skipped[first : first + 3] == [0, 0, 0]
    assert metrics[first + 3]["loss_scale"] == 2 * metrics[first]["loss_scale"], "after three good steps"
    good = skipped.count(0)
    np.testing.assert_allclose(weights, 1 - good * 0.5 / 2, rtol=1e-3)


def test_a_scale_that_stays() -> None:
    weights, metrics = run(LossScale.Config(initial=8.0, growth_interval=None), [1.0, 1.0])
    np.testing.assert_allclose(weights, 0.5, rtol=1e-3)
    assert [(each["loss_scale"], each["skipped"]) for each in metrics] == [(8.0, 0.0)] * 2


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"smallest <= initial <= largest"):
        LossScale.Config(initial=0.5).build()
