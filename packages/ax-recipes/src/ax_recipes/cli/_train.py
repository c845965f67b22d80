"""``ax train``: a recipe, a folder, a display; then the curve, a sample, and what to do next."""

from __future__ import annotations

import sys
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

if TYPE_CHECKING:
    from ax_recipes._experiment import Experiment

_SAMPLE_TOKENS = 200  # with the prompt within the length that the small recipes train on
_SAMPLE_TEMPERATURE = 0.6


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
    prompt: str
    show: bool

    def config(self) -> Experiment.Config:
        """The recipe with its mesh rules and then the options applied."""
        if self.cpu_devices is not None:
            import jax

            jax.config.update("jax_num_cpu_devices", self.cpu_devices)
        on = self.on if self.on is not None else self._this_accelerator()
        config = effective(self.recipe, on=on, num_steps=self.steps)
        if self.on_bad_record != "error":
            set_at(config, "input.on_bad_record", self.on_bad_record)
        if self.data:
            config = with_data(config, self.data)
        if self.skip_steps:
            config = without_steps(config, self.skip_steps)
        return override(config, [assignment(text, "--set") for text in self.overrides])

    def _this_accelerator(self) -> str:
        import jax

        return accelerator_name(jax.devices())

    def __call__(self) -> None:
        """Train, and tell the user all about it."""
        config = self.config()
        if self.show:
            print(dumps(config), end="")
            return
        from ax_runtime.agent import run_locally

        folder = self.run if self.run is not None else Path("runs") / config.name
        console = Console()
        with TrainingDisplay(console) as display:
            experiment = config.build(more_sinks=[display], on_read=display.on_read, on_plan=display.on_plan)
            experiment.read()
            begun = _has_begun(folder)
            ended = run_locally(
                experiment, folder, config=dumps(config), may_differ=lambda line: not begun or _is_length(line)
            )
        self._report(console, experiment, folder, display)
        if ended.stopped_by is not None:
            console.print(
                f"stopped by {ended.stopped_by}, with everything saved; the same command resumes", highlight=False
            )
            sys.exit(130 if ended.stopped_by == "SIGINT" else 143)
        self._sample(console, experiment, folder)

    def _report(self, console: Console, experiment: Experiment, folder: Path, display: TrainingDisplay) -> None:
        outcome = experiment.outcome
        assert outcome is not None
        train, validation = _history(folder / "metrics.jsonl")
        if len(train) > 1:
            console.print(draw(train, validation, width=console.width), highlight=False, markup=False)
        if not display.num_steps_shown:
            console.print(f"nothing left to do: the run is at step {outcome.step}; go on with a larger --steps")
        if outcome.why == "data":
            console.print(f"the data ended at step {outcome.step}")
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


def _has_begun(folder: Path) -> bool:
    """Whether there is anything to lose in a run's folder; one that failed before its first step may be used anew."""
    metrics = folder / "metrics.jsonl"
    return (folder / "checkpoints").exists() or (metrics.exists() and metrics.stat().st_size > 0)


def _is_length(line: str) -> bool:
    """Whether a line of a config only says how long to train: a run may go on for longer than planned."""
    path = line.partition(" = ")[0]
    return path in ("num_steps", "input.skip") or path.rpartition(".")[2] in ("decay_steps", "warmup_steps")
