"""What people see: lines, and the curve."""

from __future__ import annotations

import io
import math

import jax
from ax_recipes import Plan
from ax_recipes.cli._console import TrainingDisplay
from ax_recipes.cli._curve import draw
from ax_trainer.testing import check_sink
from rich.console import Console


def plan() -> Plan:
    return Plan(
        num_steps=100,
        num_params=1_500_000,
        tokens_per_step=4096,
        flops_per_token=9e6,
        devices=jax.devices(),
        peak_flops=2e11,
        peak_measured=True,
        data="12 documents",
    )


def watched(*, terminal: bool) -> str:
    out = io.StringIO()
    with TrainingDisplay(Console(file=out, force_terminal=terminal, width=120)) as display:
        display.on_read(5, 10)
        display.on_plan(plan())
        display.rewind(0)
        display.write(0, "speed", {"compile_seconds": 1.5})
        for step in range(1, 101):
            display.write(step, "train", {"loss": 3 - step / 100})
            display.write(step, "speed", {"step_seconds": 0.5, "tokens_per_second": 8192.0, "mfu": 0.37})
        display.write(100, "validation", {"loss": 2.1, "bits_per_byte": 3.03})
        display.close()
    return out.getvalue()


def test_plain_lines_where_nobody_watches_a_terminal() -> None:
    lines = watched(terminal=False).splitlines()
    assert "data    12 documents" in lines
    assert "model   1.50 M parameters, 4,096 tokens a step, 37 GFLOP a step" in lines
    assert any("(measured by a matmul); MFU counts" in line for line in lines)
    assert "step      1/100  loss 2.990  8,192 tokens/s  MFU 37.0%  0:50 left" in lines
    assert "step    100/100  loss 2.000  8,192 tokens/s  MFU 37.0%  0:00 left" in lines
    assert lines[-1] == "step    100  validation: loss 2.1000  bits_per_byte 3.0300"
    assert len(lines) < 12  # not a line a step


def test_a_bar_on_a_terminal() -> None:
    shown = watched(terminal=True)
    assert "100/100" in shown
    assert "━" in shown
    assert "validation: loss 2.1000" in shown


def test_the_display_is_a_metric_sink() -> None:
    check_sink(lambda: TrainingDisplay(Console(file=io.StringIO())))


def test_the_curve_falls_from_left_to_right() -> None:
    train = [(step, 1 + 2 * math.exp(-step / 50)) for step in range(1, 301)]
    text = draw(train, [(100, 1.3), (300, 1.01)], width=80)
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert text.count("●") == 3  # two marks and the legend's
    blank = "\u2800"
    top, bottom = lines[1].split("┤")[1], lines[-2].split("┤")[1]
    assert top.startswith("⠉")
    assert bottom.startswith(blank * 20)
    assert bottom.strip(blank)
    assert draw([(5, 1.0), (6, 1.0)], [], width=40)
