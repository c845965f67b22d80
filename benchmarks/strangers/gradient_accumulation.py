"""Gradient accumulation: a step on a batch that is too large for memory, microbatch by microbatch.

It needs nothing of a trainer, a model or an optimizer. The loss is a mean over microbatches, and its derivative is the mean
of theirs, which is summed up while they are run through; so any trainer that is given that loss accumulates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable, Config, replace
from ax_recipes.protocols import Loop
from ax_trainer import Trainer
from ax_trainer.protocols import Batch, Metrics, Model, Params

ConfigT = TypeVar("ConfigT", bound=Config[object])
Losses: TypeAlias = tuple[jax.Array, Metrics]


class Accumulating(Config[Loop]):
    """A trainer that is given a model whose loss runs through ``num_microbatches``."""

    trainer: Buildable[Loop] = REQUIRED
    num_microbatches: int
    dtype: Literal["float32", "bfloat16"] = "float32"  # to sum gradients up in
    weighted: Literal["by target", "equally"] = "by target"
    unroll: int = 1  # microbatches an iteration

    def make(self, **extras: object) -> Loop:
        """Build the trainer, telling it everything that it would be told without this, but for the model."""
        model = Accumulated(
            cast("Model[object]", extras["model"]), self.num_microbatches, self.dtype, self.weighted, self.unroll
        )
        return self.trainer.build(**{**extras, "model": model})


@dataclass(frozen=True)
class Accumulated(Generic[Params]):
    """Fits ``Model``; it is the model that it is given, with the same parameters."""

    model: Model[Params]
    num_microbatches: int
    dtype: str
    weighted: str
    unroll: int

    def specs(self) -> object:
        """The model's."""
        return self.model.specs()

    def init(self, key: jax.Array, /) -> Params:
        """The model's."""
        return self.model.init(key)

    def loss(self, params: Params, batch: Batch, /, *, key: jax.Array, train: bool) -> Losses:
        """The mean of the microbatches' losses, and of their metrics, by their number of targets."""
        if not train:
            return self.model.loss(params, batch, key=key, train=train)
        rows = len(next(iter(batch.values())))
        if rows % self.num_microbatches:
            raise ValueError(f"a batch of {rows} rows can't be cut into {self.num_microbatches} microbatches")
        size = rows // self.num_microbatches
        parts = {name: x.reshape(self.num_microbatches, size, *x.shape[1:]) for name, x in batch.items()}

        @jax.custom_vjp
        def mean(params: Params, parts: Batch, keys: jax.Array) -> Losses:
            return self._forward(params, parts, keys)[0]

        def backward(gradients: Params, outer: Losses) -> tuple[Params, None, None]:
            return jax.tree.map(lambda gradient: gradient * outer[0].astype(gradient.dtype), gradients), None, None

        mean.defvjp(self._forward, backward)
        return mean(params, parts, jax.random.split(key, self.num_microbatches))

    def _forward(self, params: Params, parts: Batch, keys: jax.Array) -> tuple[Losses, Params]:
        """The losses, and the gradient of the first: one pass over the microbatches for both."""
        one = cast(
            "Callable[[Params, Batch, jax.Array], tuple[Losses, Params]]",
            jax.value_and_grad(lambda p, part, key: self.model.loss(p, part, key=key, train=True), has_aux=True),
        )

        def body(total: object, part: tuple[Batch, jax.Array]) -> tuple[object, tuple[Losses, jax.Array]]:
            (loss, metrics), gradients = one(params, *part)
            weight = metrics["loss"][1] if self.weighted == "by target" else jnp.ones((), jnp.float32)

            def add(old: jax.Array, gradient: jax.Array) -> jax.Array:
                return old + (weight * gradient).astype(old.dtype)

            return jax.tree.map(add, total, gradients), ((loss, metrics), weight)

        zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, self.dtype), params)
        total, ((losses, metrics), weights) = jax.lax.scan(body, zeros, (parts, keys), unroll=self.unroll)
        sum_of_weights = jnp.maximum(weights.sum(), 1e-30)
        gradients = jax.tree.map(lambda g, p: g.astype(p.dtype) / sum_of_weights.astype(p.dtype), total, params)
        return ((losses * weights).sum() / sum_of_weights, {k: _mean(*m) for k, m in metrics.items()}), gradients


def _mean(values: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    total = weights.sum()
    return (values * weights).sum() / jnp.maximum(total, 1e-30), total


VARIANTS: Mapping[str, Accumulating] = {
    "2": Accumulating(num_microbatches=2),
    "4": Accumulating(num_microbatches=4),
    "8": Accumulating(num_microbatches=8),
    "2, equally": Accumulating(num_microbatches=2, weighted="equally"),
    "4, equally": Accumulating(num_microbatches=4, weighted="equally"),
    "8, equally": Accumulating(num_microbatches=8, weighted="equally"),
    "4 in bfloat16": Accumulating(num_microbatches=4, dtype="bfloat16"),
    "8 in bfloat16": Accumulating(num_microbatches=8, dtype="bfloat16"),
    "4 unrolled": Accumulating(num_microbatches=4, unroll=4),
    "8, two an iteration": Accumulating(num_microbatches=8, unroll=2),
}


def modify(tree: ConfigT, *, variant: str) -> ConfigT:
    """The trainer is given a model that runs through microbatches."""
    return replace(tree, Trainer, lambda trainer: VARIANTS[variant].clone(trainer=trainer))
