"""μP: its table, and the coordinate check: what layers compute changes by the same at every width (Yang et al. 2022, appendix D.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
import pytest
from ax_config import config_for
from ax_trainer import Learner, WidthScaling, init_state, train_step
from ax_trainer._widths import Factors
from ax_trainer.protocols import Batch, Metrics
from ax_trainer.testing import ArraySpec, SingleDevice

VOCAB_SIZE = 16


@dataclass(frozen=True)
class Summing(ArraySpec):
    """Says what is summed over."""

    fan_in: tuple[int, ...] = ()


def test_the_table() -> None:
    specs = {
        "embedding": Summing((16, 64), ("vocab", "embed"), (-1,)),
        "layers": {
            "query": Summing((2, 64, 8, 4), ("layers", "embed", "heads", None), (-3,)),
            "output": Summing((2, 8, 4, 64), ("layers", "heads", None, "embed"), (-3, -2)),
            "experts": Summing((2, 3, 64, 128), ("layers", "expert", "embed", "mlp"), (-2,)),
            "norm": ArraySpec((2, 64), ("layers", "embed")),
        },
        "features": ArraySpec((5, 64), (None, "embed")),
        "head": Summing((16, 64), ("vocab", "embed"), (-1,)),
    }
    scaling = WidthScaling.Config(base={"embed": 16, "heads": 2, "mlp": 64}).build()
    assert scaling.factors(specs) == {
        "embedding": Factors(2.0, 1.0),
        "layers/query": Factors(1.0, 1 / 4),
        "layers/output": Factors(1.0, 1 / 4),
        "layers/experts": Factors(1.0, 1 / 4),
        "head": Factors(1 / 2, 1 / 4),
    }
    assert WidthScaling.Config(base={"embed": 64, "heads": 8, "mlp": 128}).build().factors(specs) == {}
    with pytest.raises(ValueError, match="no parameter has the base's axis 'width'; there are embed, expert, heads"):
        WidthScaling.Config(base={"width": 4}).build().factors(specs)
    with pytest.raises(
        ValueError, match=r"the pattern 'wte' of what is looked up matches no parameter; there are embed"
    ):
        WidthScaling.Config(base={"embed": 4}, looked_up=("wte",)).build().factors(specs)


class Residual:
    """Tokens, three residual layers and a head, of any width; reports how large its values are."""

    def __init__(self, width: int) -> None:
        self.width = width

    def specs(self) -> dict[str, ArraySpec]:
        return {
            "embedding": Summing((VOCAB_SIZE, self.width), ("vocab", "embed"), (-1,)),
            "layers": Summing((3, self.width, self.width), ("layers", "embed", "embed"), (-2,)),
            "head": Summing((VOCAB_SIZE, self.width), ("vocab", "embed"), (-1,)),
        }

    def init(self, key: jax.Array, /) -> dict[str, jax.Array]:
        keys = jax.random.split(key, 3)
        shapes = [spec.shape for spec in self.specs().values()]
        values = [jax.random.normal(k, shape) * self.width**-0.5 for k, shape in zip(keys, shapes, strict=True)]
        return dict(zip(self.specs(), values, strict=True))

    def loss(
        self, params: dict[str, jax.Array], batch: Batch, /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, Metrics]:
        hidden = params["embedding"][batch["tokens"]]
        for layer in range(3):
            hidden = hidden + jnp.tanh(hidden @ params["layers"][layer])
        logits = hidden @ params["head"].T
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()
        once = jnp.ones(())
        return loss, {
            "loss": (loss, once),
            "hidden": (jnp.abs(hidden).mean(), once),
            "logits": (jnp.abs(logits).mean(), once),
        }


def sizes(width: int, widths: WidthScaling.Config | None) -> tuple[float, float]:
    """Of hidden values and logits, after a few steps."""
    model, place = Residual(width), SingleDevice()
    random = np.random.default_rng(0)
    tokens = random.integers(0, VOCAB_SIZE, 64).astype(np.int32)
    batch = place.put({"tokens": tokens, "targets": ((3 * tokens + 1) % VOCAB_SIZE).astype(np.int32)})
    cfg = Learner.Config(schedule=config_for(optax.constant_schedule)(value=1e-2), widths=widths)
    optimizer = cfg.build().for_specs(model.specs())
    state, step = init_state(model, optimizer, place, seed=0), jax.jit(train_step(model, optimizer))
    for _ in range(5):
        state, metrics = step(state, batch)
    return float(metrics["hidden"][0]), float(metrics["logits"][0])


def growth(values: Sequence[tuple[float, float]], widths: Sequence[int]) -> np.ndarray:
    """By which power of the width each grows."""
    powers: np.ndarray = np.polyfit(np.log(widths), np.log(np.asarray(values)), 1)[0]
    return powers


def test_what_layers_compute_does_not_grow_with_the_width() -> None:
    widths = [32, 256]
    scaling = WidthScaling.Config(base={"embed": 32})
    scaled, plain = ([sizes(width, cfg) for width in widths] for cfg in (scaling, None))
    assert scaled[0] == plain[0], "the base model is as it is"
    assert (growth(scaled, widths) < 0.1).all(), scaled
    assert (growth(plain, widths) > (0.15, 0.5)).all(), plain
