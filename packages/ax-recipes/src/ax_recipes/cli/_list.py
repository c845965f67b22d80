"""``ax list``."""

from __future__ import annotations

import inspect

from rich.console import Console
from rich.table import Table

from ax_recipes._catalogue import CATALOGUE, recipe


def list_recipes() -> None:
    """Print the catalogue: names and what they train."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("recipe", style="bold", no_wrap=True)
    table.add_column("steps", justify="right")
    table.add_column("what it trains")
    for name in CATALOGUE:
        function = recipe(name)
        table.add_row(name, f"{function().num_steps:,}", inspect.cleandoc(function.__doc__ or ""))
    Console().print(table)
    Console().print("\nTrain one with [bold]ax train --recipe NAME[/bold].", highlight=False)
