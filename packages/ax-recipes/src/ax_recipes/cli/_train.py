"""``ax train``: a recipe, a folder, a display; then the curve, a sample, and what to do next."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ax_config import dumps, override, set_at
from ax_config.overrides import assignment
from ax_mesh import accelerator_name
from rich.console import Console

from ax_recipes._catalogue import effective
from ax_recipes._data import with_data, without_steps

from ._console import TrainingDisplay
from ._curve import Points, draw
from ._processes import Processes, part

if TYPE_CHECKING:
    from ax_recipes._experiment import Experiment

_SAMPLE_TOKENS = 200  # with the prompt within the length that the small recipes train on
_SAMPLE_TEMPERATURE = 0.6
_ENDS = {
    "data": "the data ended",
    "plateau": "training got no better and ended",
    "tokens": "the budget's tokens were used up",
    "epochs": "the budget's epochs were over",
    "seconds": "the budget's time was up",
}


@dataclass(frozen=True)
class TrainCommand:
    """The options of ``ax train``; calling it trains."""

    recipe: str
    on: str | None
    data: tuple[str, ...]
    steps: int | None
    overrides: tuple[str, ...]
    run: Path | None
    on_bad_record: str
    skip_steps: tuple[str, ...]
    cpu_devices: int | None
    profile: tuple[str, ...]
    compile_cache: str | None
    processes: Processes
    prompt: str
    show: bool

    def config(self) -> Experiment.Config:
        """The recipe with its mesh rules and then the options applied."""
        on = self.on if self.on is not None else self._this_accelerator()
        config = effective(self.recipe, on=on, num_steps=self.steps)
        if self.on_bad_record != "error":
            set_at(config, "input.on_bad_record", self.on_bad_record)
        if self.data:
            config = with_data(config, self.data)
        if self.skip_steps:
            config = without_steps(config, self.skip_steps)
        if self.profile:
            set_at(config, "profiler.windows", tuple(_window(text) for text in self.profile))
        return override(config, [assignment(text, "--set") for text in self.overrides])

    def _this_accelerator(self) -> str:
        import jax

        return accelerator_name(jax.devices())

    def __call__(self) -> None:
        """Train, and tell the user all about it."""
        import jax

        if self.cpu_devices is not None:
            jax.config.update("jax_num_cpu_devices", self.cpu_devices)
        if self.show:
            print(dumps(self.config()), end="")
            return
        self.processes.join()
        config = self.config()
        folder = self.run if self.run is not None else Path("runs") / config.name
        self._keep_compiled()
        if jax.process_index() != 0:
            _follow(config.build(), folder)
            return
        from ax_runtime.agent import run_locally

        console = Console()
        is_alone = jax.process_count() == 1
        with TrainingDisplay(console) as display:
            experiment = config.build(more_sinks=[display], on_read=display.on_read, on_plan=display.on_plan)
            experiment.read()
            begun = _has_begun(folder)
            ended = run_locally(
                experiment,
                folder,
                config=dumps(config),
                may_differ=lambda line: not begun or _may_change(line),
                environment=_environment(),
            )
            part()
        self._report(console, experiment, folder, display)
        if _is_stopped(experiment):
            by = ended.stopped_by or "a signal to another process"
            console.print(f"stopped by {by}, with everything saved; the same command resumes", highlight=False)
            sys.exit(130 if by == "SIGINT" else 143)
        if is_alone:
            self._sample(console, experiment, folder)

    def _keep_compiled(self) -> None:
        from ax_trainer import keep_compiled

        folder = _user_cache() / "compiled" if self.compile_cache is None else self.compile_cache
        if folder:
            keep_compiled(folder)

    def _report(self, console: Console, experiment: Experiment, folder: Path, display: TrainingDisplay) -> None:
        outcome = experiment.outcome
        assert outcome is not None
        train, validation = _history(folder / "metrics.jsonl")
        if len(train) > 1:
            console.print(draw(train, validation, width=console.width), highlight=False, markup=False)
        if not display.num_steps_shown:
            console.print(f"nothing left to do: the run is at step {outcome.step}; go on with a larger --steps")
        if outcome.why in _ENDS:
            console.print(f"{_ENDS[outcome.why]} at step {outcome.step}")
        console.print(f"checkpoint  {folder / 'checkpoints' / str(outcome.step)}", highlight=False, soft_wrap=True)
        console.print(
            f"metrics     {folder / 'metrics.jsonl'}   (tensorboard --logdir {folder})", highlight=False, soft_wrap=True
        )

    def _sample(self, console: Console, experiment: Experiment, folder: Path) -> None:
        from ax_recipes._sample import stream_text

        console.print("\na sample:\n", highlight=False)
        console.out(self.prompt, end="", highlight=False)
        _, params = experiment.parameters(folder)
        for piece in stream_text(
            experiment, params, self.prompt, max_new_tokens=_SAMPLE_TOKENS, temperature=_SAMPLE_TEMPERATURE
        ):
            console.out(piece, end="", highlight=False)
        console.print(
            f'\n\nmore of it: ax generate {folder} --prompt "class "', highlight=False, markup=False, soft_wrap=True
        )


def _history(metrics: Path) -> tuple[Points, Points]:
    """Step and loss of the whole run, earlier starts included: in training and in validation."""
    from ax_runtime.agent import read_jsonl

    losses: dict[str, list[tuple[int, float]]] = {"train": [], "validation": []}
    for record in read_jsonl(metrics):
        if record.name in losses:
            losses[record.name].append((record.step, record.values["loss"]))
    return losses["train"], losses["validation"]


def _follow(experiment: Experiment, folder: Path) -> None:
    """Train as one of the processes that aren't the first, which alone opens the folder and talks."""
    from ax_runtime.agent import StopOnSignals

    with StopOnSignals() as stop:
        experiment.run(folder.absolute(), stop)
    part()
    if _is_stopped(experiment):
        sys.exit(143)


def _is_stopped(experiment: Experiment) -> bool:
    return experiment.outcome is not None and experiment.outcome.why == "stopped"


def _environment() -> Mapping[str, object]:
    """What the devices are, for the record of the start."""
    import jax

    kinds = Counter(device.device_kind for device in jax.devices())
    return {
        "accelerator": accelerator_name(jax.devices()),
        "devices": [f"{number} × {kind}" for kind, number in kinds.items()],
        "processes": jax.process_count(),
    }


def _user_cache() -> Path:
    """Where programs keep what they can make again: https://specifications.freedesktop.org/basedir-spec/latest"""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ax"


def _window(text: str) -> tuple[int, int]:
    """The steps that ``FROM:TO`` means, without ``TO``."""
    first, _, end = text.partition(":")
    if not (first.isdecimal() and end.isdecimal() and 1 <= int(first) < int(end)):
        raise ValueError(f"--profile wants FROM:TO, steps from 1, without TO; got {text!r}")
    return int(first), int(end) - 1


def _has_begun(folder: Path) -> bool:
    """Whether there is anything to lose in a run's folder; one that failed before its first step may be used anew."""
    metrics = folder / "metrics.jsonl"
    return (folder / "checkpoints").exists() or (metrics.exists() and metrics.stat().st_size > 0)


def _may_change(line: str) -> bool:
    """Whether a line of a config may change while a run goes on: how long it trains, and who watches."""
    path = line.partition(" = ")[0]
    if path.partition(".")[0].partition("[")[0] in ("sinks", "profiler"):
        return True
    return path in ("num_steps", "input.skip") or path.rpartition(".")[2] in ("decay_steps", "warmup_steps")
