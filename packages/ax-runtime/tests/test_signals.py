"""Signals become a flag; the second Ctrl-C is an interrupt again."""

from __future__ import annotations

import os
import signal

import pytest
from ax_runtime.agent import StopOnSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_for_a_stop_and_is_remembered(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopOnSignals() as stop:
        assert (stop.should_stop(1), stop.signal_name) == (False, None)
        os.kill(os.getpid(), number)
        assert (stop.should_stop(2), stop.signal_name) == (True, number.name)
    assert signal.getsignal(number) is before


def test_the_second_ctrl_c_interrupts_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopOnSignals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # Asking again changes nothing.
        assert stop.signal_name == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
