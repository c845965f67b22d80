"""A training loop of JAX and optax in forty lines. It trains what ax-layers makes, and an experiment takes it for a trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import jax
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_layers import ModuleModel
from ax_layers.protocols import ArrayTree


class Batches(Protocol):
    """Anything to take batches from."""

    def __next__(self) -> Mapping[str, np.ndarray]: ...


@dataclass(frozen=True)
class Ending:
    """Fits ``Outcome`` of ax-recipes."""

    step: int
    why: str
    losses: list[float]


class OptaxLoop:
    """Fits ``Loop`` of ax-recipes; it checkpoints nothing, evaluates nothing, and lets XLA place the arrays."""

    def __init__(
        self,
        *,
        learning_rate: float,
        num_steps: int,
        model: ModuleModel,
        batches: Batches,
        **_not_used: object,
    ) -> None:
        self._optimizer = optax.adam(learning_rate)
        self._num_steps, self._model, self._batches = num_steps, model, batches

    def run(self) -> Ending:
        params = jax.jit(self._model.init)(jax.random.key(0))
        opt_state = self._optimizer.init(params)
        step = jax.jit(self._step, donate_argnums=(0, 1))
        losses = []
        for key in jax.random.split(jax.random.key(1), self._num_steps):
            params, opt_state, loss = step(params, opt_state, next(self._batches), key)
            losses.append(float(loss))
        return Ending(self._num_steps, "finished", losses)

    def _step(
        self, params: ArrayTree, opt_state: object, batch: Mapping[str, jax.Array], key: jax.Array
    ) -> tuple[ArrayTree, object, jax.Array]:
        loss, grads = jax.value_and_grad(lambda p: self._model.loss(p, batch, key=key, train=True)[0])(params)
        updates, opt_state = self._optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss
