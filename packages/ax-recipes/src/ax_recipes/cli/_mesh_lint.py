"""``ax mesh lint``: what a recipe's step communicates on an accelerator, and what of it nobody asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import jax
from ax_config import override
from ax_config.overrides import assignment
from ax_mesh import Collective, Mesh, Surprise, accelerator_group, compile_program, lint
from rich import box
from rich.console import Console
from rich.table import Table

from ax_recipes._aot import described_mesh, lower
from ax_recipes._catalogue import effective
from ax_recipes._experiment import ExperimentError
from ax_recipes._forecast import NO_CHIPS

_PASSING = tuple(f"ax_layers/{name}.py" for name in ("_context", "_functional", "_module", "_sharder"))
"""Where modules' calls and constraints pass through, so that the line before is the one to show."""


def lint_recipe(name: str, *, on: str, overrides: tuple[str, ...]) -> None:
    """Print the collectives of the recipe's step and the surprises among them, and leave with 1 if there are any."""
    os.environ.update(NO_CHIPS)
    jax.config.update("jax_platforms", NO_CHIPS["JAX_PLATFORMS"])
    group = accelerator_group(on)
    if group.accelerator.platform == "cpu":
        jax.config.update("jax_num_cpu_devices", group.num_devices)
    config = override(effective(name, on=on), [assignment(text, "--set") for text in overrides])
    if not isinstance(config.mesh, Mesh.Config):
        raise ExperimentError(
            f"ax mesh lint knows the rules of an ax_mesh.Mesh, but {name} has a {type(config.mesh).__qualname__}"
        )
    cfg = config.mesh
    axes = described_mesh(config, group).axes
    program = compile_program(lower(config, group), axes, compiler_options=cfg.compiler_options)
    rules = [*cfg.rules, *(rule for page in cfg.overrides.values() for rule in page), *cfg.optimizer_rules]
    found = lint(program, rules, passing=_PASSING)
    console = Console()
    console.print(_table(program.collectives, found))
    for surprise in found:
        console.print(f"• {surprise}", highlight=False, soft_wrap=True)
    if found:
        console.print(
            f"{len(found)} collectives that no rule asked for; the one that sends most is first", style="bold"
        )
        sys.exit(1)
    console.print(f"{len(program.collectives)} collectives, all asked for by the mesh and its rules", style="bold")


def _table(collectives: Sequence[Collective], surprises: Sequence[Surprise]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption_justify="left")
    for title, right in (
        ("collective", 0),
        ("over", 0),
        ("in a step", 1),
        ("sent by a device", 1),
        ("not asked for", 1),
    ):
        table.add_column(title, justify="right" if right else "left")
    unasked = [surprise.collective for surprise in surprises]
    kinds = sorted({(each.kind, each.axes) for each in collectives})
    for kind, axes in kinds:
        alike = [each for each in collectives if (each.kind, each.axes) == (kind, axes)]
        strange = sum(each in alike for each in unasked)
        table.add_row(
            kind,
            " + ".join(axes),
            f"{sum(each.times for each in alike):,}",
            f"{sum(each.times * each.wire_bytes for each in alike) / 2**20:,.1f} MiB",
            f"{strange:,}" if strange else "–",
        )
    table.caption = "as the partitioner wrote them; loops are multiplied out, loops of unknown length counted once"
    return table
