"""The seams that ax-trainer owns: what its loop asks of a model, a mesh, a data stream and its surroundings.

The trainer knows none of their classes. Arrays cross as numpy or jax arrays, trees of them as ``object`` (any pytree)
or as the model's own type ``Params``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import numpy as np

Params = TypeVar("Params")
Params_contra = TypeVar("Params_contra", contravariant=True)
Updates = TypeVar("Updates")
Updates_co = TypeVar("Updates_co", covariant=True)
Statistics = TypeVar("Statistics")
Tree = TypeVar("Tree")

HostBatch: TypeAlias = Mapping[str, np.ndarray]
"""What a batch source gives: named arrays whose first dim is the batch."""

Batch: TypeAlias = Mapping[str, jax.Array]
"""The same, on the devices."""

Metrics: TypeAlias = Mapping[str, tuple[jax.Array, jax.Array]]
"""Named scalars, each a weighted mean and its weight: means of several batches combine by weight."""


class Spec(Protocol):
    """What a leaf of ``Model.specs()`` tells of its parameter."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def axes(self) -> Sequence[str | None]:
        """The logical name of each dim, None where it has none; as long as ``shape``."""
        ...


@runtime_checkable
class SupportsWeightDecay(Protocol):
    """A spec that says whether weight decay is for its parameter; others are judged by their number of dims."""

    @property
    def weight_decay(self) -> bool: ...


@runtime_checkable
class SupportsTrainable(Protocol):
    """A spec that says whether its parameter is learnt; all others are."""

    @property
    def trainable(self) -> bool: ...


@runtime_checkable
class SupportsFanIn(Protocol):
    """A spec of a matrix that says which of its dims an output sums over; of others it is the first of two, stacks aside."""

    @property
    def fan_in(self) -> Sequence[int]:
        """These dims, counted from the end (-1 is the last); none where nothing is summed."""
        ...


class Model(Protocol[Params]):
    """Something with parameters and a loss."""

    def specs(self) -> object:
        """A pytree congruent to the parameters; each leaf has ``shape``, ``dtype`` and ``axes`` (logical dim names)."""
        ...

    def init(self, key: jax.Array, /) -> Params:
        """Fresh parameters, a pure function of ``key``; traced under jit so that they are born sharded."""
        ...

    def loss(self, params: Params, batch: Batch, /, *, key: jax.Array, train: bool) -> tuple[jax.Array, Metrics]:
        """The scalar to minimise and the metrics to report, of which ``"loss"`` with its weight (the number of targets) is one."""
        ...


@runtime_checkable
class SupportsStateUpdates(Protocol[Params, Updates]):
    """A model some of whose parameters are states, which each step assigns: moving averages, the load of experts.

    The step assigns after the optimizer's update, so that neither gradients nor weight decay reach a state.
    """

    def loss_and_updates(
        self, params: Params, batch: Batch, /, *, key: jax.Array, train: bool
    ) -> tuple[jax.Array, tuple[Metrics, Updates]]:
        """What ``Model.loss`` gives, and a pytree of arrays for ``updated``; in training it is called instead of ``loss``."""
        ...

    def updated(self, params: Params, updates: Updates, /) -> Params:
        """``params`` with new states, all else as it is."""
        ...


@runtime_checkable
class SupportsObservation(Protocol[Params_contra]):
    """A model that tells what its parts give, for whoever looks for the place where two computations part."""

    def observations(
        self, params: Params_contra, batch: Batch, /, *, key: jax.Array, train: bool
    ) -> Mapping[str, np.ndarray]:
        """What each part gives on the way to the loss, by name, in the order of computation; not to be traced."""
        ...


@runtime_checkable
class SupportsBatchStatistics(Protocol[Params_contra, Updates_co, Statistics]):
    """A model whose loss takes more of a batch as a whole than the number of its targets, and can be computed of parts all the same.

    An example is the load of experts, whose product with their mean score is to be small over the batch, not in each part.
    """

    def batch_statistics(self, params: Params_contra, batch: Batch, /, *, key: jax.Array) -> Statistics:
        """What the loss of a training step takes of ``batch``: a pytree of float32 arrays that are averaged over equal parts."""
        ...

    def loss_and_updates_of_part(
        self, params: Params_contra, batch: Batch, statistics: Statistics, /, *, key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Updates_co]]:
        """As ``SupportsStateUpdates.loss_and_updates`` in training, told the mean ``statistics`` of all parts.

        The mean over the parts of these losses, and of their gradients, is that of the whole batch. Metrics are the part's own.
        """
        ...


class Optimizer(Protocol):
    """What optax calls a gradient transformation; any of optax's fits.

    One that takes extra arguments (``optax.GradientTransformationExtraArgs``) is given ``grad_norm``, the global norm
    of the gradients, and ``value``, the loss, which the step has computed. Scalars in its state, in fields of these names, tell
    the step something: ``learning_rate`` is reported; where ``skipped`` is true all parameters stay as they were, those too that
    the model updates itself; the loss is multiplied with ``loss_scale`` before gradients are taken, which are divided by it.
    """

    def init(self, params: object, /) -> object:
        """The state before the first update; traced under jit."""
        ...

    def update(self, updates: object, state: object, params: object, /) -> tuple[object, object]:
        """What to add to the parameters, given their gradients, and the next state."""
        ...


@runtime_checkable
class SupportsSpecs(Protocol):
    """Makes an optimizer once it knows the parameters' specs: which ones decay, which form a group."""

    def for_specs(self, specs: object, /) -> Optimizer:
        """The optimizer for parameters of these specs (see ``Model.specs``), which are those of the learnt ones."""
        ...


@runtime_checkable
class SupportsFreezing(Protocol):
    """An ``Optimizer`` that leaves some parameters as they are; it is made for the others, and no gradients are computed of these."""

    @property
    def frozen_parameters(self) -> Collection[str]:
        """Their paths."""
        ...


@runtime_checkable
class SupportsFirstValues(Protocol):
    """An ``Optimizer`` that wants a model's parameters to begin otherwise: as μP does, whose learning rates go with first values."""

    def first_values(self, params: Tree, /) -> Tree:
        """What to begin with, given what the model begins with; of the same shapes and types, traced under jit."""
        ...


class SkipRule(Protocol):
    """Says of a step whether it is to be skipped, within the step: nothing waits for the host."""

    def init(self) -> object:
        """What it remembers before the first step: a pytree of arrays."""
        ...

    def judge(self, state: object, /, *, loss: jax.Array, grad_norm: jax.Array) -> tuple[jax.Array, object]:
        """Whether this step is to be skipped, a scalar bool, and what it remembers next."""
        ...


class Averaging(Protocol):
    """A way to average parameters over steps, around an optimizer."""

    def around(self, optimizer: Optimizer, schedule: Callable[[jax.Array], jax.Array], /) -> Optimizer:
        """One whose state ``ax_trainer.averaged`` knows; ``schedule`` is the learning rate of ``optimizer`` by its updates."""
        ...


class Partitioner(Protocol):
    """Knows the devices: where parameters live and how a batch reaches them."""

    def shardings(self, specs: object, /) -> object:
        """A pytree of ``jax.sharding.Sharding`` congruent to ``specs`` (see ``Model.specs``)."""
        ...

    def replicated(self) -> jax.sharding.Sharding:
        """The sharding of what every device holds whole: the step, keys, scalars."""
        ...

    def put(self, batch: HostBatch, /) -> Batch:
        """The batch on the devices, split along its first dim; each process gives its own part."""
        ...

    def activate(self) -> AbstractContextManager[None]:
        """A context in which steps are traced and compiled for these devices."""
        ...


@runtime_checkable
class SupportsOptimizerShardings(Protocol):
    """A ``Partitioner`` that may split what the optimizer remembers of a parameter further than the parameter."""

    def optimizer_shardings(self, specs: object, /) -> object:
        """As ``shardings``, of the arrays in the optimizer's state that mirror parameters, and of their gradients and updates."""
        ...


@runtime_checkable
class SupportsCompilerOptions(Protocol):
    """A ``Partitioner`` that knows what to tell the compiler of its devices."""

    @property
    def compiler_options(self) -> Mapping[str, str | bool]:
        """Options of XLA by name, as ``jax.stages.Lowered.compile`` takes them."""
        ...


class BatchSource(Protocol):
    """A stream of batches that can tell and retake its position."""

    def __next__(self) -> HostBatch:
        """The next batch; StopIteration at the end."""
        ...

    def get_state(self) -> bytes:
        """The position, such that after ``set_state`` the stream continues with the same batches."""
        ...

    def set_state(self, state: bytes, /) -> None: ...


@runtime_checkable
class SupportsOrigins(Protocol):
    """A ``BatchSource`` that can tell where a batch comes from; asked when one turns out to be bad."""

    def origins(self, state: bytes, /) -> Sequence[str]:
        """What the batch that follows the position ``state`` is made of, over all processes: a line per span of a document."""
        ...


@runtime_checkable
class SupportsEpochs(Protocol):
    """A ``BatchSource`` that knows how often it has gone through its data."""

    def epochs(self, state: bytes, /) -> float:
        """How many epochs were given out before the position ``state``; 1.5 in the middle of the second."""
        ...


class Checkpointer(Protocol):
    """Keeps states by step. A save is complete or absent, never half."""

    def save(self, step: int, arrays: object, blobs: Mapping[str, bytes], /) -> None:
        """Start saving a pytree of arrays, and bytes by name; the arrays may be donated once this returns."""
        ...

    def restore(self, step: int, abstract: Tree, /) -> tuple[Tree, Mapping[str, bytes]]:
        """The arrays saved at ``step``, placed as the ``jax.ShapeDtypeStruct`` leaves of ``abstract`` say, and the bytes.

        Raises ValueError that names the parameter when shapes or structure differ.
        """
        ...

    def latest(self) -> int | None:
        """The newest complete step, or None."""
        ...

    def wait(self) -> None:
        """Return when all saves are complete; raise what went wrong with one."""
        ...


class MetricSink(Protocol):
    """Where numbers go."""

    def rewind(self, step: int, /) -> None:
        """Training (re)starts after ``step``: forget whatever was written for later steps; for all, if it is -1."""
        ...

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        """Record ``values`` at ``step`` under ``name`` ("train", or an evaluator's name); durable against a kill once it returns."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class SupportsLastStep(Protocol):
    """A ``MetricSink`` that remembers across processes; tells a restart which steps have to be done again."""

    def last_step(self) -> int | None:
        """The greatest step that it holds values of, None where there are none."""
        ...


class Hook(Protocol):
    """Something to do between steps."""

    def on_step(self, step: int, /) -> None:
        """Called when ``step`` has been dispatched to the devices, which may still be at work on it."""
        ...


@runtime_checkable
class SupportsStartAndEnd(Protocol):
    """A ``Hook`` that is told when steps begin and that there will be no more."""

    def on_start(self, step: int, /) -> None:
        """The step after ``step`` is about to be dispatched, the first of this process."""
        ...

    def on_end(self, step: int, /) -> None:
        """``step`` was the last one of this process; called also when an exception ends the loop."""
        ...


class StopSignal(Protocol):
    """Tells the loop to save and return."""

    def should_stop(self, step: int, /) -> bool:
        """Asked after every step."""
        ...
