"""``ax mesh table``: recipes × accelerators, each compiled in a process of its own, with a bar while it takes its time."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ax_recipes._catalogue import CLUSTERS, LARGE
from ax_recipes._forecast import Forecast, forecast

HEAD = (
    "recipe",
    "on",
    "devices",
    "mesh",
    "kept of a layer",
    "parts",
    "HBM GiB",
    "of",
    "state",
    "temporary",
    "host",
    "model PFLOP",
    "program",
    "sent GB",
    "compile s",
    "fits",
)


def table(
    recipes: Sequence[str],
    *,
    on: Sequence[str],
    overrides: tuple[str, ...],
    jobs: int,
    json_file: Path | None,
    markdown: bool,
) -> None:
    """Print the table; exit with 1 if something doesn't fit or compile."""
    pairs = [(recipe, accelerator) for recipe in recipes or LARGE for accelerator in on or CLUSTERS]
    console = Console(stderr=True)
    found: dict[tuple[str, str], Forecast] = {}
    with Progress(console=console, transient=True) as progress, ThreadPoolExecutor(jobs) as pool:
        task = progress.add_task("compiling", total=len(pairs))
        waiting = {pool.submit(forecast, name, on=where, overrides=overrides): (name, where) for name, where in pairs}
        for future in as_completed(waiting):
            found[waiting[future]] = future.result()
            progress.advance(task)
            if json_file is not None:
                done = [asdict(found[pair]) for pair in pairs if pair in found]
                json_file.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    rows = [found[pair] for pair in pairs]
    if markdown:
        print(as_markdown(rows))
    else:
        Console(width=None if sys.stdout.isatty() else 240).print(_rich(rows))
    for row in rows:
        if row.problem is not None:
            console.print(f"{row.recipe} on {row.on}: {row.problem}", highlight=False, markup=False, soft_wrap=True)
    if any(row.problem is not None or row.fits is False for row in rows):
        sys.exit(1)


def as_markdown(rows: Iterable[Forecast]) -> str:
    """The table for a README."""
    lines = [_line(HEAD), _line(["---" if column < 2 else "--:" for column in range(len(HEAD))])]
    return "\n".join([*lines, *(_line(_cells(row)) for row in rows)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rich(rows: Sequence[Forecast]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column, title in enumerate(HEAD):
        made.add_column(title, justify="left" if column in (0, 1, 3, 4, 15) else "right", overflow="fold")
    for row in rows:
        made.add_row(*_cells(row))
    return made


def _cells(row: Forecast) -> tuple[str, ...]:
    fits = {True: "yes", False: "no", None: "–"}[row.fits]
    return (
        row.recipe,
        row.on,
        f"{row.num_devices:,}",
        " ".join(f"{axis} {size}" for axis, size in row.mesh.items() if size > 1) or "one device",
        row.remat,
        str(row.num_microbatches),
        _gib(row.hbm),
        _gib(row.hbm_limit),
        _gib(row.arguments),
        _gib(row.temporaries),
        _gib(row.host),
        _scaled(row.model_flops, 1e15),
        _scaled(row.program_flops, 1e15),
        _scaled(sum(row.collectives.values()), 1e9) if row.hbm is not None and row.arguments is not None else "–",
        _scaled(row.compile_seconds, 1.0),
        "failed" if row.problem is not None else "lowers" if row.lowered_only else fits,
    )


def _gib(number: float | None) -> str:
    return _scaled(number, 2**30)


def _scaled(number: float | None, unit: float) -> str:
    if number is None:
        return "–"
    shown = number / unit
    return f"{shown:,.1f}" if shown >= 0.1 or not shown else f"{shown:.1g}"
