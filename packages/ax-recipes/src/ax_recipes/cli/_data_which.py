"""``ax data which``."""

from __future__ import annotations

from pathlib import Path

from ax_runtime.agent import iter_jsonl
from rich.console import Console
from rich.markup import escape

from ax_recipes._experiment import ExperimentError
from ax_recipes._runs import config_of
from ax_recipes.protocols import SupportsLedger


def which(run: Path, *, step: int, text: bool) -> None:
    """Print the spans of a step's batch, row by row."""
    experiment = config_of(run).build()
    data = experiment.read()
    if not isinstance(data, SupportsLedger):
        raise ExperimentError(
            f"{run}: the data of this run, by {type(data).__name__}, doesn't know what its batches hold"
        )
    ledger = data.ledger
    batch = ledger.batch_at(batches_before(run / "metrics.jsonl", step))
    targets = ledger.read(batch)["targets"] if text else None
    console = Console()
    console.print(f"step {step} of {run}: batch {batch}", highlight=False, markup=False, soft_wrap=True)
    row = -1
    for span in ledger.spans(batch):
        if span.row != row:
            row = span.row
            console.print(f"[bold]row {row}[/bold]", highlight=False)
        console.print(
            f"  {escape(span.origin)}   tokens {span.begin:,} to {span.end:,}   "
            f"[dim]document {span.document:,} of {escape(span.source)}, epoch {span.epoch}[/dim]",
            highlight=False,
            soft_wrap=True,
        )
        if targets is not None:
            ids = targets[span.row, span.offset : span.offset + span.end - span.begin]
            console.print(f"    {experiment.tokenizer.decode(ids)!r}", highlight=False, markup=False, soft_wrap=True)


def batches_before(metrics: Path, step: int) -> int:
    """How many batches were dealt before ``step``: one a step, and when a run went back, its data went on."""
    ahead = [(0, 0)]  # from which step on the data is how far ahead
    if metrics.is_file():
        for record in iter_jsonl(metrics):
            if record.name == "events" and "rewind" in record.values:
                begin, end = int(record.values["to_step"]), int(record.values["from_step"])
                by_then = next(lead for since, lead in reversed(ahead) if since < end)
                ahead = [each for each in ahead if each[0] < begin or each[0] == 0]
                ahead.append((begin, by_then + end - begin))
    return step - 1 + next(lead for since, lead in reversed(ahead) if since < step)
