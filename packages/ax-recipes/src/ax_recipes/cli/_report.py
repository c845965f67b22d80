"""``ax report``: runs as one HTML file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ax_recipes.report import History, Sample, read_history, render

_TEMPERATURE = 0.8


def report(runs: Sequence[Path], *, out: Path | None, num_samples: int, prompt: str, tokens: int) -> None:
    """Write the report, and say where it is."""
    histories = [read_history(run, name=name) for run, name in zip(runs, _names(runs), strict=True)]
    if num_samples:
        histories = [
            replace(history, samples=tuple(_samples(history, num_samples, prompt=prompt, tokens=tokens)))
            for history in histories
        ]
    file = out if out is not None else (runs[0] if len(runs) == 1 else Path()) / "report.html"
    file.write_text(render(histories), encoding="utf-8")
    console = Console()
    console.print(f"{file}  ({file.stat().st_size / 1e6:.1f} MB)", highlight=False, soft_wrap=True)


def _names(runs: Sequence[Path]) -> list[str]:
    """What tells the folders apart: their paths below what they have in common, or one's name."""
    paths = [run.resolve() for run in runs]
    if len(set(paths)) != len(paths):
        raise ValueError(f"a run is named twice: {', '.join(map(str, runs))}")
    shared = Path(os.path.commonpath([path.parent for path in paths]))
    return [str(path.relative_to(shared)) for path in paths]


def _samples(history: History, number: int, *, prompt: str, tokens: int) -> Iterator[Sample]:
    from ax_recipes._runs import config_of
    from ax_recipes._sample import stream_text

    experiment = config_of(history.folder).build()
    step, params = experiment.parameters(history.folder)
    for seed in range(number):
        text = "".join(
            stream_text(experiment, params, prompt, max_new_tokens=tokens, temperature=_TEMPERATURE, seed=seed)
        )
        yield Sample(prompt, text, step)
