"""What limits a run refuses, and when it says that nothing gets better."""

import pytest
from ax_trainer import Budget, EarlyStop
from ax_trainer.protocols import HostBatch
from ax_trainer.testing import MemoryBatches
from runs import BATCHES


class Endless:
    """Fits ``BatchSource``, and knows no epochs."""

    def __next__(self) -> HostBatch:
        return BATCHES[0]

    def get_state(self) -> bytes:
        return b""

    def set_state(self, state: bytes, /) -> None:
        pass


def test_limits_that_can_not_be_told_are_refused() -> None:
    with pytest.raises(ValueError, match="max_seconds must be positive, got 0"):
        Budget(Budget.Config(max_seconds=0), batches=Endless(), tokens_per_step=None)
    with pytest.raises(ValueError, match="max_tokens needs tokens_per_step"):
        Budget(Budget.Config(max_tokens=5), batches=Endless(), tokens_per_step=None)
    with pytest.raises(ValueError, match=r"counts them \(SupportsEpochs\), which Endless doesn't"):
        Budget(Budget.Config(max_epochs=1), batches=Endless(), tokens_per_step=None)


def test_the_first_of_several_limits_counts() -> None:
    limits = Budget.Config(max_tokens=100, max_epochs=2, max_seconds=3)
    budget = Budget(limits, batches=MemoryBatches(BATCHES), tokens_per_step=10)
    assert budget.spent(9, b"13") is None
    assert budget.spent(9, b"14") == "epochs"
    assert budget.spent(10, b"10") == "tokens"
    assert (budget.is_late(2.9), budget.is_late(3.0)) == (False, True)


def seen(values: list[float], **changes: object) -> list[bool]:
    stop = EarlyStop(EarlyStop.Config(evaluator="valid", patience=2).clone(**changes))
    reached = []
    for value in values:
        stop.see("another", {})
        stop.see("valid", {"loss": value})
        reached.append(stop.is_reached)
    return reached


def test_patience_is_for_evaluations_in_a_row() -> None:
    assert seen([3.0, 3.0, 2.0, 2.5, 2.0]) == [False, False, False, False, True]
    assert seen([3.0, 2.95, 2.8, 2.8], min_delta=0.1) == [False, False, False, False]
    assert seen([3.0, 2.95, 2.91], min_delta=0.1) == [False, False, True]
    assert seen([3.0, 4.0, 4.0, 3.0], mode="max") == [False, False, False, True]


def test_impossible_patience_is_refused() -> None:
    with pytest.raises(ValueError, match="patience must be at least 1, got 0"):
        seen([], patience=0)
    with pytest.raises(ValueError, match="min_delta must not be negative"):
        seen([], min_delta=-1.0)
