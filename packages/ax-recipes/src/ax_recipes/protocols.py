"""What an experiment asks of its parts. It composes what other packages' Protocols describe, and adds what only it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar, runtime_checkable

import ax_layers.protocols
import jax
import numpy as np
from ax_input import Ledger
from ax_layers import SpecTree
from ax_layers.protocols import ArrayTree, Sharder
from ax_trainer.protocols import BatchSource, Checkpointer, Partitioner

Tree = TypeVar("Tree")


class LanguageModel(ax_layers.protocols.LanguageModel, Protocol):
    """What is trained and sampled from: a language model of ax-layers or one like it; built with ``vocab_size``."""

    def specs(self) -> SpecTree:
        """Its parameters."""
        ...

    def init(self, key: jax.Array, /) -> ArrayTree:
        """Fresh parameters."""
        ...


class Pipeline(Protocol):
    """Data that has been read and is ready to be dealt out; its config is built with ``tokenizer`` and ``on_progress``.

    In each of several processes also with ``shard_index`` and ``shard_count``: it then deals out that part of the rows of every batch.
    """

    def train(self) -> BatchSource:
        """A new stream of training batches, at its beginning."""
        ...

    def validation(self, *, max_batches: int | None = None) -> Iterable[Mapping[str, np.ndarray]]:
        """The held-out data, to go over as often as wanted."""
        ...

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Rows of a batch, over all processes, and tokens of a row."""
        ...

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per target of the held-out data, for bits per byte."""
        ...

    @property
    def report(self) -> object:
        """What was read and what was left out; printed for the user."""
        ...


@runtime_checkable
class SupportsLedger(Protocol):
    """A ``Pipeline`` that knows what any batch of ``train`` is made of."""

    @property
    def ledger(self) -> Ledger:
        """What is in which batch."""
        ...


@runtime_checkable
class SupportsBatchShapes(Protocol):
    """The config of a ``Pipeline`` that knows its batches before anything is read."""

    def batch_shapes(self) -> Mapping[str, tuple[tuple[int, ...], np.dtype]]:
        """The shape and the dtype of each array of a batch, over all processes; the first dim is the batch."""
        ...


class Placement(Partitioner, Sharder, Protocol):
    """The devices, for the trainer and for the layers at once."""


@runtime_checkable
class SupportsDescription(Protocol):
    """A ``Placement`` that tells of itself; its config is built with ``devices``, or with their number and ``num_groups``."""

    @property
    def axes(self) -> Mapping[str, int]:
        """The size of each mesh axis."""
        ...

    def batch_sharding(self, num_rows: int, /) -> jax.sharding.Sharding:
        """Where ``put`` puts arrays of so many rows, over all processes."""
        ...


class StateStore(Checkpointer, Protocol):
    """A checkpointer that can also read a part of a state; its config is built with ``folder``, a ``Path``."""

    def restore_part(self, step: int, abstract: Tree, /) -> Tree:
        """Only the arrays that ``abstract`` has."""
        ...

    def close(self) -> None:
        """Wait, and end background threads."""
        ...


class Outcome(Protocol):
    """How training ended."""

    @property
    def step(self) -> int:
        """The last step that was done, counted over all runs that continue each other."""
        ...

    @property
    def why(self) -> str:
        """ "finished", "stopped", "data", or what else ended it: "tokens", "epochs", "seconds", "plateau"."""
        ...


class Loop(Protocol):
    """A trainer, ready to run.

    Its config is built with ``num_steps``, ``model``, ``partitioner``, ``batches``, ``evaluators``, ``checkpointer``, ``sinks``,
    ``hooks``, ``stop``, ``derive``, ``tokens_per_step``, ``flops_per_step`` and ``peak_flops``, which mean what they mean to
    ``ax_trainer.Trainer``.
    """

    def run(self) -> Outcome:
        """Train; returns with everything saved."""
        ...


@runtime_checkable
class SupportsAbstractState(Protocol):
    """A ``Loop`` that can tell its state without making it."""

    def abstract_state(self) -> object:
        """A pytree of ``jax.ShapeDtypeStruct`` with shardings, with parts called "params" and "opt_state"; touches no device."""
        ...


@runtime_checkable
class SupportsLowering(Protocol):
    """A ``Loop`` whose step can be traced without being run."""

    def lower(self, batch: Mapping[str, jax.ShapeDtypeStruct], /, *, platform: str | None = None) -> jax.stages.Lowered:
        """The step for a described batch; touches no device. ``platform`` is for meshes of devices that are nowhere."""
        ...
