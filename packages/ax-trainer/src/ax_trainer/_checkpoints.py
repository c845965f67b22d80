"""What a checkpoint of a run holds beside the state: where the data stands, and what the loop remembers."""

from __future__ import annotations

import json
from typing import Generic, NamedTuple, TypedDict

from ._bad_steps import Memory as BadStepsMemory
from ._early_stop import Memory as EarlyStopMemory
from ._state import TrainState
from .protocols import Checkpointer, Params

_INPUT, _LOOP = "input", "loop"


class CheckpointError(RuntimeError):
    """A state could not be saved, or lacks a part. Checkpoints that were complete before still are."""


class Memory(TypedDict, total=False):
    """What the loop remembers, as JSON. Any part may be missing: older checkpoints have fewer."""

    saved_at: float
    """Seconds since the epoch."""
    seconds: dict[str, float]
    """The run's time by cause."""
    bad_steps: BadStepsMemory
    early_stop: EarlyStopMemory


class Snapshot(NamedTuple, Generic[Params]):
    """A run between two steps."""

    step: int
    state: TrainState[Params]
    position: bytes
    """Where the data stands."""
    memory: Memory


class Checkpoints(Generic[Params]):
    """Saves and restores snapshots by a checkpointer; without one there are none."""

    def __init__(self, checkpointer: Checkpointer | None) -> None:
        self._checkpointer = checkpointer

    def newest(self, abstract: TrainState[Params], /) -> Snapshot[Params] | None:
        """The newest complete snapshot, placed as ``abstract`` says.

        Raises:
            CheckpointError: It doesn't say where the data stands.
        """
        step = self._checkpointer.latest() if self._checkpointer is not None else None
        if self._checkpointer is None or step is None:
            return None
        state, blobs = self._checkpointer.restore(step, abstract)
        if _INPUT not in blobs:
            raise CheckpointError(f"the checkpoint of step {step} has no {_INPUT!r} among its blobs {sorted(blobs)}")
        memory: Memory = json.loads(blobs[_LOOP]) if _LOOP in blobs else {}
        return Snapshot(step, state, blobs[_INPUT], memory)

    def save(self, snapshot: Snapshot[Params], /) -> None:
        """Start saving.

        Raises:
            CheckpointError: This save can't begin, or the one before failed.
        """
        if self._checkpointer is None:
            return
        blobs = {_INPUT: snapshot.position, _LOOP: json.dumps(snapshot.memory).encode()}
        try:
            self._checkpointer.save(snapshot.step, snapshot.state, blobs)
        except Exception as error:
            raise _unsaved(snapshot.step, error) from error

    def wait(self, step: int, /) -> None:
        """All saves are complete when it returns; ``step`` is where the loop stands.

        Raises:
            CheckpointError: One failed.
        """
        if self._checkpointer is None:
            return
        try:
            self._checkpointer.wait()
        except Exception as error:
            raise _unsaved(step, error) from error


def _unsaved(step: int, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"at step {step} a checkpoint turns out not to be written: {error}. Mend the cause and run again: training goes on "
        "from the newest checkpoint"
    )
