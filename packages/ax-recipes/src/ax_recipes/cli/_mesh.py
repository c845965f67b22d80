"""``ax mesh``: where a recipe's arrays go on an accelerator, before there is one. Each command is one file beside this one."""

from __future__ import annotations

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



    Examples:

        ax mesh show tiny --on v5e-8

        ax mesh show llama-2-7b --on v5p-512 --set "mesh.axes={'data': 8, 'fsdp': -1}"
    """
    with explained(debug=debug):
        from ._mesh_show import show as run_show

        run_show(name, on=on, overrides=tuple(overrides or ()))
