"""``ax mesh``: where a recipe's arrays go on an accelerator, before there is one. Each command is one file beside this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._failure import explained

mesh = typer.Typer(
    name="mesh",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Look at a recipe's parallelism on an accelerator that need not be here.\n\nBegin with `ax mesh show tiny --on v5e-8`.",
)


@mesh.command()
def show(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe, or `module:function` for one of yours.")],
    on: Annotated[str, typer.Option(metavar="KIND-NUMBER", help="The accelerator, such as `h100-8` or `v5p-512`.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change any value of the config; repeat it.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Draw the mesh, and show how every parameter is split, how many bytes a device holds, and what is whole and why.

    It is told by the rules alone: no device is looked at and nothing is compiled, so any accelerator will do.

    **Read the table** like this: a parameter's dims have names (`embed`, `heads`, …), and the recipe's `mesh.rules` say over
    which axes of the mesh each name is split. `embed/fsdp` is split over fsdp, `layers` is whole on every device, and the last
    column says why. Names first in `mesh.rules` get their axis first.

    **Change it** with `--set`: sizes with `mesh.axes` (and `mesh.between`, between slices or nodes), rules with
    `mesh.rules`, rules for some parameters by path with `mesh.overrides`, and those of the optimizer's state with
    `mesh.optimizer_rules`.

    Examples:

        ax mesh show tiny --on v5e-8

        ax mesh show llama-2-7b --on v5p-512 --set "mesh.axes={'data': 8, 'fsdp': -1}"

        ax mesh show llama-2-7b --on h100-64 --set "mesh.axes={'tensor': 8}" --set "mesh.between={'fsdp': -1}"

        ax mesh show tiny --on v5e-8 --set "mesh.optimizer_rules=(('embed', 'data'),)"
    """
    with explained(debug=debug):
        from ._mesh_show import show as run_show

        run_show(name, on=on, overrides=tuple(overrides or ()))


@mesh.command()
def lint(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe, or `module:function` for one of yours.")],
    on: Annotated[str, typer.Option(metavar="KIND-NUMBER", help="The accelerator, such as `h100-8` or `cpu-8`.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change any value of the config; repeat it.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Find communication that nobody asked for: compile a recipe's step, and name every collective that no rule explains.

    Split parameters are gathered and their gradients summed, activations are summed along an axis that splits heads or
    features, tokens travel to their experts: that is what a mesh and its rules ask for. What else the compiler inserts mends a
    contradiction, such as a constraint that splits another dim than the layers around it do. It is shown with the line that it
    was made for and the constraints on both sides. Then the command ends with 1.

    Examples:

        ax mesh lint tiny --on cpu-8 --set "mesh.axes={'data': 2, 'fsdp': 4}"

        ax mesh lint llama-2-7b --on v5e-256
    """
    with explained(debug=debug):
        from ._mesh_lint import lint_recipe

        lint_recipe(name, on=on, overrides=tuple(overrides or ()))


@mesh.command()
def table(
    recipes: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE]…", help="Recipes. Default: those for hundreds of chips.")
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND-NUMBER", help="An accelerator; repeat it. Default: the clusters of the catalogue."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change any value of the config; repeat it.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="How many compilers run at a time, each in some 4 GB of memory.")
    ] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write it there too, anew after every row.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print it for a README.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Compile recipes for accelerators that need not be here: does it fit, what does it compute and send, how long does it take.

    A row is a minute or two of work for the accelerator's own compiler, in a process of its own: if that fails, the row says so.
    Bytes are of one device as JAX counts them. *parts* are microbatches; *sent* is by one device in a step.

    Examples:

        ax mesh table llama-2-7b --on v5e-256 --on h100-64

        ax mesh table --json table.json --markdown
    """
    with explained(debug=debug):
        from ._mesh_table import table as run_table

        run_table(
            recipes or (),
            on=on or (),
            overrides=tuple(overrides or ()),
            jobs=jobs,
            json_file=json_file,
            markdown=markdown,
        )
