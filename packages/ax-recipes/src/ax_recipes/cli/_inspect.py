"""``ax inspect``: what a model is made of, and what it costs, before anything is allocated."""

from __future__ import annotations

from ax_config import get_at, override
from ax_config.overrides import assignment
from ax_layers import Module, inventory
from rich import box
from rich.console import Console
from rich.table import Table

from ax_recipes._catalogue import CATALOGUE, effective
from ax_recipes._experiment import Experiment
from ax_recipes._models import model, model_names

_SEQ_LENGTH = 4_096


def inspect(name: str, *, on: str, seq_length: int | None, depth: int | None, overrides: tuple[str, ...]) -> None:
    """Print the table of a recipe's model or of a published one."""
    assignments = [assignment(text, "--set") for text in overrides]
    built: object
    if name not in CATALOGUE and name in model_names():
        built = override(model(name), assignments).build()
    else:
        config = override(effective(name, on=on), assignments)
        built = config.build().model
        seq_length = seq_length or _length_of(config)
    if not isinstance(built, Module):
        raise ValueError(f"{name} builds a {type(built).__qualname__}, which is no Module of ax-layers")
    length = seq_length or _SEQ_LENGTH
    rows = inventory(built, seq_length=length)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("module", no_wrap=True)
    for title, width in (("parameters", 14), ("bytes", 9), ("FLOPs/token", 11), ("share", 6)):
        table.add_column(title, justify="right", no_wrap=True, min_width=width)
    table.add_column("class", style="dim", no_wrap=True, min_width=10)
    total = rows[0]
    for row in rows:
        if depth is not None and row.depth > depth:
            continue
        share = row.training_flops / total.training_flops if total.training_flops else 0.0
        table.add_row(
            "  " * row.depth + (row.path.rpartition("/")[2] or name),
            f"{row.num_params:,}",
            _bytes(row.num_bytes),
            _flops(row.training_flops),
            f"{share:.1%}",
            row.kind,
        )
    console = Console()
    console.print(table)
    console.print(
        f"sequences of {length:,} tokens; FLOPs of forward and backward: 6 for each weight of a matmul that a token meets "
        "(the head included, the embedding not), attention in full",
        style="dim",
        highlight=False,
    )


def _length_of(config: Experiment.Config) -> int | None:
    try:
        length = get_at(config, "input.seq_length")
    except AttributeError:  # another pipeline
        return None
    return length if isinstance(length, int) else None


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} GiB"


def _flops(number: float) -> str:
    for unit in ("", " k", " M"):
        if number < 1000:
            return f"{number:,.1f}{unit}" if number else "–"
        number /= 1000
    return f"{number:,.1f} G"
