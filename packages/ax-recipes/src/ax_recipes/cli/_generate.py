"""``ax generate``."""

from __future__ import annotations

import sys
from pathlib import Path

from ax_recipes._runs import config_of
from ax_recipes._sample import stream_text


def generate(
    run: Path, *, prompt: str, tokens: int, temperature: float, top_k: int | None, top_p: float | None, seed: int
) -> None:
    """Write the prompt and its continuation to the standard output."""
    experiment = config_of(run).build()
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
