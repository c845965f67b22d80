"""Another optimizer: cautious sign descent, which optax hasn't got, and some of those that it has.

Lion (Chen et al. 2023, arXiv:2302.06675) moves by the sign of a momentum; a cautious optimizer (Liang et al. 2024,
arXiv:2411.16085) leaves out the steps that the newest gradient speaks against.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import Config, config_for, setting
from ax_trainer import Learner
from ax_trainer.protocols import Optimizer

ConfigT = TypeVar("ConfigT", bound=Config[object])


def scale_by_cautious_lion(*, b1: float = 0.9, b2: float = 0.99, cautious: bool = True) -> Optimizer:
    """An optax transformation, learning rate not included."""

    def init(params: object) -> object:
        return jax.tree.map(jnp.zeros_like, params)

    def update(updates: object, momentum: object, _params: object = None) -> tuple[object, object]:
        def direction(gradient: jax.Array, mean: jax.Array) -> jax.Array:
            step = jnp.sign(b1 * mean + (1 - b1) * gradient)
            if not cautious:
                return step
            agrees = (step * gradient > 0).astype(step.dtype)
            return step * agrees / jnp.maximum(agrees.mean(), 1e-3)

        def average(gradient: jax.Array, mean: jax.Array) -> jax.Array:
            return b2 * mean + (1 - b2) * gradient

        return jax.tree.map(direction, updates, momentum), jax.tree.map(average, updates, momentum)

    return cast("Optimizer", optax.GradientTransformation(init, update))


_call = config_for
VARIANTS: Mapping[str, Config[Optimizer]] = {
    "cautious Lion": _call(scale_by_cautious_lion)(),
    "cautious Lion, longer memory": _call(scale_by_cautious_lion)(b1=0.95, b2=0.98),
    "Lion, ours": _call(scale_by_cautious_lion)(cautious=False),
    "Lion": _call(optax.scale_by_lion)(b1=0.9, b2=0.99),
    "momentum": _call(optax.trace)(decay=0.9, nesterov=True),
    "RMSProp": _call(optax.scale_by_rms)(decay=0.99),
    "RAdam": _call(optax.scale_by_radam)(),
    "AdaBelief": _call(optax.scale_by_belief)(),
    "Adan": _call(optax.scale_by_adan)(),
    "Adafactor": _call(optax.scale_by_factored_rms)(),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """Another rule; clipping, weight decay and schedule stay."""
    return setting(Learner, rule=VARIANTS[variant])(tree)
