"""What a person watches while a model trains: a bar on a terminal, plain lines elsewhere. It is one more metric sink."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ax_recipes._experiment import Plan

_LINE_EVERY_SECONDS = 10.0
_SMALLEST_SHARE = 0.005


@final
class TrainingDisplay:
    """Shows the plan, every step, and a line for each evaluation. Fits ``MetricSink``; use it in a ``with`` block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._reading: TaskID | None = None
        self._num_steps = 0
        self._loss = float("nan")
        self._goodput: Mapping[str, float] = {}
        self._next_line = 0.0
        self.num_steps_shown = 0
        """How many steps this process did."""
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[info]}"))
            self._bar = Progress(columns[0], columns[1], MofNCompleteColumn(), columns[2], console=console, expand=True)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_read(self, done: int, total: int, /) -> None:
        """So many bytes of the data are read."""
        if self._bar is None:
            return
        if self._reading is None:
            self._reading = self._bar.add_task("reading", total=total, info="")
        self._bar.update(self._reading, completed=done, total=total, visible=done < total)

    def on_plan(self, plan: Plan, /) -> None:
        """Say what is going to be done."""
        self._num_steps = plan.num_steps
        kind = plan.devices[0].device_kind
        peak = f"{plan.peak_flops / 1e12:.2f} TFLOP/s{' (measured by a matmul)' if plan.peak_measured else ''}"
        self._say(f"data    {plan.data}")
        self._say(
            f"model   {plan.num_params / 1e6:.2f} M parameters, {plan.tokens_per_step:,} tokens a step, "
            f"{plan.flops_per_token * plan.tokens_per_step / 1e9:,.0f} GFLOP a step"
        )
        self._say(
            f"devices {len(plan.devices)} × {kind}, peak {peak}; MFU counts 6·N + 12·L·H·T FLOPs a token against it"
        )
        if self._bar is not None:
            if self._reading is not None:
                self._bar.remove_task(self._reading)
            self._task = self._bar.add_task("training", total=plan.num_steps, info="compiling …")

    def rewind(self, step: int, /) -> None:
        """Training goes on after ``step``."""
        if step > 0:
            self._say(f"resume  from the checkpoint of step {step}")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=max(step, 0))

    def write(self, step: int, name: str, values: Mapping[str, float], /) -> None:
        """Show what was measured."""
        if name == "train":
            self._loss = values["loss"]
            self.num_steps_shown += 1
        elif name == "speed":
            self._show_speed(step, values)
        elif name == "goodput":
            self._goodput = values
        elif name == "events":
            self._say(f"step {step:>6}  " + ", ".join(_event(name, value) for name, value in values.items()))
        elif name != "details":  # too many for a person
            numbers = "  ".join(f"{key} {value:.4f}" for key, value in values.items())
            self._say(f"step {step:>6}  {name}: {numbers}")

    def close(self) -> None:
        """Say where the time went."""
        seconds = {name.removesuffix("_seconds"): x for name, x in self._goodput.items() if name.endswith("_seconds")}
        total = sum(seconds.values())
        if total > 0:
            causes = sorted(seconds.items(), key=lambda item: (item[0] != "step", -item[1]))
            shares = [("productive" if cause == "step" else cause, x / total) for cause, x in causes]
            told = "; ".join(f"{share:.0%} {cause}" for cause, share in shares if share >= _SMALLEST_SHARE)
            self._say(f"time    {_clock(total)}: {told}")
            self._goodput = {}

    def _show_speed(self, step: int, values: Mapping[str, float]) -> None:
        if "step_seconds" not in values:
            kept = " (kept from an earlier run)" if values.get("compile_cached") else ""
            self._say(f"compile {values['compile_seconds']:.1f} s{kept}")
            return
        left = max(self._num_steps - step, 0) * values["step_seconds"]
        info = f"loss {self._loss:.3f}  {values['tokens_per_second']:,.0f} tokens/s  MFU {values['mfu']:.1%}  {_clock(left)} left"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, info=info)
        elif time.monotonic() >= self._next_line or step == self._num_steps:
            self._next_line = time.monotonic() + _LINE_EVERY_SECONDS
            self._say(f"step {step:>6}/{self._num_steps}  {info}")

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def _event(name: str, value: float) -> str:
    """What happened, or a number that belongs to it."""
    return name if value == 1 else f"{name.replace('_', ' ')} {value:g}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
