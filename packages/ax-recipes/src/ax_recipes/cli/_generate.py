"""``ax generate``."""

from __future__ import annotations

import sys
from pathlib import Path

from ax_config import loads

from ax_recipes._experiment import Experiment, ExperimentError
from ax_recipes._sample import stream_text


def generate(
    run: Path, *, prompt: str, tokens: int, temperature: float, top_k: int | None, top_p: float | None, seed: int
) -> None:
    """Write the prompt and its continuation to the standard output."""
    file = run / "config.txt"
    if not file.is_file():
        raise ExperimentError(f"{run} is no run folder: it has no config.txt; train one with ax train --run {run}")
    config = loads(file.read_text())
    if not isinstance(config, Experiment.Config):
        raise ExperimentError(f"{file} describes a {type(config).__qualname__}, not an experiment")
    experiment = config.build()
    step, params = experiment.parameters(run)
    print(f"{run}, step {step}", file=sys.stderr)
    print(prompt, end="", flush=True)
    for piece in stream_text(
        experiment,
        params,
        prompt,
        max_new_tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    ):
        print(piece, end="", flush=True)
    print()
