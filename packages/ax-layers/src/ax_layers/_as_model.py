"""A module with a loss, as what a training loop asks for: specs, init, a pure loss with metrics, and updates of states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ._context import Collected, Observer, Summary
from ._functional import functional
from ._module import OF_BATCH, Module
from ._observations import in_order
from ._param_spec import ParamSpec, SpecTree
from ._sharder import Unsharded
from .protocols import ArrayTree, Sharder

AUX_LOSS = "aux_loss"
"""Outputs of this name are added to the loss."""

NUM_TARGETS = "num_targets"
"""What a loss asks for that is a mean over targets (``Module.of_batch``)."""


class LossModule(Protocol):
    """What ``as_model`` asks of a module: ``loss`` is ``@scoped`` and says "loss" and its weight among the metrics."""

    def specs(self) -> SpecTree: ...

    def init(self, key: jax.Array, /) -> ArrayTree: ...

    def loss(
        self, batch: Mapping[str, jax.Array], /, *, train: bool
    ) -> tuple[jax.Array, Mapping[str, tuple[jax.Array, jax.Array]]]: ...


@dataclass(frozen=True)
class ModuleModel:
    """A module as pure functions."""

    module: LossModule
    sharder: Sharder
    per_layer: bool = False

    def specs(self) -> SpecTree:
        """What the parameters will be. Where some are adapters', the others aren't learnt."""
        specs = self.module.specs()
        if not any(spec.adapter for spec in jax.tree.leaves(specs)):
            return specs

        def adapters_only(spec: ParamSpec) -> ParamSpec:
            return replace(spec, trainable=spec.trainable and spec.adapter)

        learnt: SpecTree = jax.tree.map(adapters_only, specs)
        return learnt

    def init(self, key: jax.Array, /) -> ArrayTree:
        """Fresh parameters, a pure function of ``key``."""
        return self.module.init(key)

    def loss(
        self, params: ArrayTree, batch: Mapping[str, jax.Array], /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, dict[str, tuple[jax.Array, jax.Array]]]:
        """The scalar to minimise, and metrics with weights.

        The scalar is the module's loss plus all outputs named "aux_loss"; metrics are the module's and the summaries of
        all modules under "path/name", averaged over layers, and if ``per_layer`` also of each as "path/name.3". Nothing is
        random unless ``train``.
        """
        loss, (metrics, _) = self.loss_and_updates(params, batch, key=key, train=train)
        return loss, metrics

    def loss_and_updates(
        self, params: ArrayTree, batch: Mapping[str, jax.Array], /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, tuple[dict[str, tuple[jax.Array, jax.Array]], dict[str, jax.Array]]]:
        """``loss``, and the next values of the parameters that are states, by path."""
        loss, metrics, aux_loss, collected = self._evaluated(params, batch, key=key, train=train)
        reported = self._reported(metrics, collected)
        if aux_loss is not None:
            loss = loss + aux_loss
            reported[AUX_LOSS] = (aux_loss, metrics["loss"][1])
        return loss, (reported, collected.updates)

    def batch_statistics(
        self, params: ArrayTree, batch: Mapping[str, jax.Array], /, *, key: jax.Array
    ) -> dict[str, jax.Array]:
        """What the loss of a training step takes of a batch as a whole: what modules ask for (``Module.of_batch``), by path.

        Whatever this doesn't take, such as the head, the compiler leaves out.

        Raises:
            ValueError: The module doesn't ask for the number of targets, so its loss is a mean over those that it sees.
        """
        _, _, _, collected = self._evaluated(params, batch, key=key, train=True)
        asked = {name: value for name, value in collected.outputs.items() if is_of_batch(name)}
        if not any(name.endswith(OF_BATCH + NUM_TARGETS) for name in asked):
            raise ValueError(
                f"the loss of {type(self.module).__qualname__} can't be computed of parts of a batch: it is to divide by "
                f"of_batch({NUM_TARGETS!r}, …), not by the number of targets that it sees"
            )
        return asked

    def loss_and_updates_of_part(
        self,
        params: ArrayTree,
        batch: Mapping[str, jax.Array],
        statistics: Mapping[str, jax.Array],
        /,
        *,
        key: jax.Array,
    ) -> tuple[jax.Array, tuple[dict[str, tuple[jax.Array, jax.Array]], dict[str, jax.Array]]]:
        """As ``loss_and_updates`` in training, of one of several equal parts of a batch, told the mean ``statistics`` of all.

        The mean of these losses over the parts is the loss of the whole batch. Metrics are the part's own.
        """
        told = reduce(_assigned, statistics.items(), params)
        loss, metrics, aux_loss, collected = self._evaluated(told, batch, key=key, train=True)
        reported = self._reported(metrics, collected)
        if aux_loss is not None:
            loss = loss + aux_loss
            reported[AUX_LOSS] = (aux_loss, jnp.ones((), jnp.float32))
        return loss, (reported, collected.updates)

    def _evaluated(
        self, params: ArrayTree, batch: Mapping[str, jax.Array], *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, Mapping[str, tuple[jax.Array, jax.Array]], jax.Array | None, Collected]:
        """The module's loss, its metrics, the sum of the auxiliary losses, and what was collected."""
        call = functional(self.module.loss, sharder=self.sharder)
        (loss, metrics), collected = call(params, key if train else None, batch, train=train)
        return loss, metrics, _aux_loss(collected), collected

    def _reported(
        self, metrics: Mapping[str, tuple[jax.Array, jax.Array]], collected: Collected
    ) -> dict[str, tuple[jax.Array, jax.Array]]:
        reported: dict[str, tuple[jax.Array, jax.Array]] = {
            **metrics,
            **{name: summary.total() for name, summary in collected.summaries.items()},
        }
        if self.per_layer:
            for name, summary in collected.summaries.items():
                reported.update(_by_layer(name, summary))
        return {name: (mean, weight) for name, (mean, weight) in reported.items()}

    def observations(
        self, params: ArrayTree, batch: Mapping[str, jax.Array], /, *, key: jax.Array, train: bool
    ) -> dict[str, np.ndarray]:
        """What every module's call returned on the way to the loss, in the order of computation, by path: ``"layers/ffn.3"``.

        All of it is held at once; wrap no jit around it. A module called again is ``"encoder#2"``.
        """
        observer = Observer()
        call = functional(self.module.loss, sharder=self.sharder, observer=observer)

        def results(params: ArrayTree, batch: Mapping[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
            return call(params, key if train else None, batch, train=train)[1].results

        return in_order(jax.jit(results)(params, batch, key), observer)

    def updated(self, params: ArrayTree, updates: Mapping[str, jax.Array], /) -> ArrayTree:
        """``params`` with the states replaced that ``updates`` name by their paths."""
        return reduce(_assigned, updates.items(), params)


def _assigned(params: ArrayTree, update: tuple[str, jax.Array]) -> ArrayTree:
    path, value = update
    name, _, below = path.partition("/")
    if not below:
        return {**params, name: value}
    inner = params.get(name, {})
    assert isinstance(inner, Mapping), f"{name} holds parameters, for there is {path}"
    return {**params, name: _assigned(inner, (below, value))}


def _by_layer(name: str, summary: Summary) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Of a summary that is stacked over layers, each layer's."""
    means, weights = summary.mean.reshape(-1), summary.weight.reshape(-1)
    return {f"{name}.{i}": (means[i], weights[i]) for i in range(means.size)} if summary.mean.ndim else {}


def is_of_batch(name: str, /) -> bool:
    """Whether the output of this path is a statistic of the batch."""
    return name.rsplit("/", 1)[-1].startswith(OF_BATCH)


def _aux_loss(collected: Collected) -> jax.Array | None:
    parts = [value for name, value in collected.outputs.items() if name.rsplit("/", 1)[-1] == AUX_LOSS]
    return (
        sum((part.astype(jnp.float32).sum() for part in parts[1:]), parts[0].astype(jnp.float32).sum())
        if parts
        else None
    )


def as_model(module: LossModule, /, *, sharder: Sharder | None = None, per_layer: bool = False) -> ModuleModel:
    """``module`` for a training loop; its activations are placed by ``sharder``, and ``per_layer`` reports each layer too.

    Raises:
        TypeError: It is no Module.
    """
    if not isinstance(module, Module):
        raise TypeError(f"as_model takes a Module, got {type(module).__qualname__}")
    return ModuleModel(module, Unsharded() if sharder is None else sharder, per_layer)
