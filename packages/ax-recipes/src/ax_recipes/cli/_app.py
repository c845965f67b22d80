"""The command line, put together. Commands import what they need when they run, so that ``--help`` is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._data import data
from ._failure import explained
from ._mesh import mesh
from ._processes import Processes, leaving_at_once

_PROMPT = "class Node:\n    def __init__(self, name):\n        self."

app = typer.Typer(
    name="ax",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    help="Train language models with JAX, on any accelerator.\n\nBegin with `ax train`: it needs no arguments.",
)

app.add_typer(data)
app.add_typer(mesh)


@app.command()
def train(
    recipe: Annotated[
        str, typer.Option(help="What to train: a name that `ax list` shows, or `module:function` for one of yours.")
    ] = "tiny",
    on: Annotated[
        str | None,
        typer.Option(
            metavar="KIND-NUMBER",
            help="The accelerator whose mesh rules apply, such as `h100-8` or `v5e-16`; by default the devices here.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Files and folders to train on (.txt .md .py .jsonl .jsonl.gz .parquet …), or what `ax data prepare` made; repeat it "
            "for more. "
            "Without it: the source code of this Python's standard library.",
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps; the learning rate follows.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change any value of the config, such as `input.batch_size=32` or `model.**.head_dim=64`; repeat it for "
            "more. `ax train --show` prints all paths.",
        ),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run's folder. Default: ./runs/ and the recipe's name.")
    ] = None,
    on_bad_record: Annotated[
        str,
        typer.Option(metavar="error|skip", help="Stop at a record that can't be read, or skip, count and report it."),
    ] = "error",
    skip_steps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FROM:TO",
            help="Leave out the data of these steps (without TO), as `ax data which` tells it; the run must not have passed them.",
        ),
    ] = None,
    cpu_devices: Annotated[
        int | None, typer.Option(min=1, help="Make the CPU look like so many devices, to try out meshes.")
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FROM:TO",
            help="Trace these steps (without TO) into the run's folder, for TensorBoard and XProf; repeat it for more. A running "
            "process traces five steps when it gets SIGUSR2.",
        ),
    ] = None,
    compile_cache: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where compiled programs are kept, so that a restart needn't compile. Default: ax/compiled in the user's cache; "
            "an empty one keeps none.",
        ),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="JAX_COORDINATOR_ADDRESS",
            help="Train in several processes, one a host, with the same command and one folder that all see: the first one's address.",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, envvar="JAX_NUM_PROCESSES", help="How many processes there are.")
    ] = None,
    process: Annotated[
        int | None, typer.Option(min=0, envvar="JAX_PROCESS_ID", help="Which of them this is, from 0.")
    ] = None,
    distributed: Annotated[
        bool,
        typer.Option("--distributed", help="Ask the cluster (Slurm, TPU pod, …) for whatever of these isn't given."),
    ] = False,
    prompt: Annotated[str, typer.Option(help="What the sample at the end continues.", show_default=False)] = _PROMPT,
    show: Annotated[bool, typer.Option("--show", help="Print the effective config and do nothing.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train a model; the same command again **resumes** where it stopped, however it stopped.

    Without arguments it trains a small Llama on the source code of Python's standard library for about six minutes,
    then writes some code of its own.

    Examples:

        ax train

        ax train --data book.txt --data notes/ --steps 2000

        ax train --set trainer.optimizer.schedule.peak_value=1e-3 --run runs/slower

        ax train --cpu-devices 8 --set "mesh.axes={'data': 2, 'fsdp': 4}"

        ax train --coordinator host0:8476 --processes 4 --process 0     (and 1, 2, 3 on the others)
    """
    with leaving_at_once(), explained(debug=debug):
        from ._train import TrainCommand

        TrainCommand(
            recipe=recipe,
            on=on,
            data=tuple(data or ()),
            steps=steps,
            overrides=tuple(overrides or ()),
            run=run,
            on_bad_record=on_bad_record,
            skip_steps=tuple(skip_steps or ()),
            cpu_devices=cpu_devices,
            profile=tuple(profile or ()),
            compile_cache=compile_cache,
            processes=Processes(coordinator, processes, process, detect=distributed),
            prompt=prompt,
            show=show,
        )()


@app.command()
def generate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, such as runs/tiny.")],
    prompt: Annotated[
        str, typer.Option(help="The text to continue. Default: the beginning of a class.", show_default=False)
    ] = _PROMPT,
    tokens: Annotated[
        int,
        typer.Option(
            min=1, help="How many tokens to write at most. Past the length it was trained on, a model rambles."
        ),
    ] = 200,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token each time.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Choose among so many of the likeliest tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Choose among the likeliest tokens of this total probability."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed writes the same text.")] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Continue a prompt with the model of a run's last checkpoint, token by token.

    Examples:

        ax generate runs/tiny --prompt "class Stack:" --tokens 500

        ax generate runs/tiny --temperature 0
    """
    with explained(debug=debug):
        from ._generate import generate as run_generate

        run_generate(run, prompt=prompt, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="The folders of runs, such as runs/tiny; several are overlaid."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where to write it. Default: report.html in the run's folder; here, of several."
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, help="So many texts by the model of each run's newest checkpoint.")
    ] = 0,
    prompt: Annotated[str, typer.Option(help="What the samples continue.", show_default=False)] = _PROMPT,
    tokens: Annotated[int, typer.Option(min=1, help="How long the samples are at most.")] = 200,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Make **one HTML file** of one run or several: curves, where the time went, events, how configs differ, environments.

    It needs no network and nothing beside it: send it to anyone. A run that goes on may be looked at.

    Examples:

        ax report runs/tiny

        ax report runs/tiny runs/slower --out both.html --samples 3
    """
    with explained(debug=debug):
        from ._report import report as run_report

        run_report(runs, out=out, num_samples=samples, prompt=prompt, tokens=tokens)


@app.command()
def inspect(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A recipe, a published model such as llama-2-7b, or `module:function`."),
    ],
    seq_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a sequence. Default: the recipe's, or 4,096.")
    ] = None,
    depth: Annotated[int | None, typer.Option(min=0, help="Show modules down to this depth only.")] = None,
    on: Annotated[
        str, typer.Option(metavar="KIND-NUMBER", help="The accelerator whose mesh rules apply to a recipe.")
    ] = "cpu-1",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change any value of the config; repeat it.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Show what a model is made of: parameters, bytes and FLOPs of every module. Nothing is allocated.

    Examples:

        ax inspect tiny

        ax inspect llama-2-70b --depth 2 --seq-length 8192
    """
    with explained(debug=debug):
        from ._inspect import inspect as run_inspect

        run_inspect(name, on=on, seq_length=seq_length, depth=depth, overrides=tuple(overrides or ()))


@app.command()
def diverge(
    a: Annotated[
        str,
        typer.Argument(metavar="A", help="A recipe, a run's folder, or a record (`.npz`) that `--save` wrote."),
    ],
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]",
            help="The same, or a folder that transformers can load, if A is a published model. Default: A, with the options for B.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change a value of both configs; repeat it.")
    ] = None,
    overrides_a: Annotated[
        list[str] | None, typer.Option("--set-a", metavar="PATH=VALUE", help="Change a value of A's alone; repeat it.")
    ] = None,
    overrides_b: Annotated[
        list[str] | None, typer.Option("--set-b", metavar="PATH=VALUE", help="Change a value of B's alone; repeat it.")
    ] = None,
    on: Annotated[
        str, typer.Option(metavar="KIND-NUMBER", help="The accelerator whose mesh rules apply to recipes.")
    ] = "cpu-1",
    data: Annotated[list[str] | None, typer.Option(help="Files and folders that the batch is taken from.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the batch.")] = 8,
    length: Annotated[int, typer.Option(min=1, help="Tokens of a row.")] = 64,
    seed: Annotated[int, typer.Option(help="Of fresh parameters and of what is random in the step.")] = 0,
    cpu_devices: Annotated[
        int | None, typer.Option(min=1, help="Make the CPU look like so many devices, to try out meshes.")
    ] = None,
    devices_a: Annotated[
        int | None, typer.Option(min=1, help="A runs on so many of the devices. Default: all.")
    ] = None,
    devices_b: Annotated[int | None, typer.Option(min=1, help="B does. Default: all.")] = None,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="The relative difference that is allowed: ‖a - b‖ / ‖a‖ of an array.")
    ] = 1e-4,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Keep A's record, to compare with elsewhere or later.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every array, not only those around the place.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Find where two computations of the same step part: other mesh, type, kernel, version, machine, or library.

    Both sides do one step on the same batch with the same parameters, and write down what every module returns, the loss and all
    gradients. The first array, in the order of computation, whose relative difference is beyond the tolerance is named, with
    the index where it is largest; then the command ends with 1. All of it is held in memory, so take few rows.

    Examples:

        ax diverge tiny --cpu-devices 8 --devices-a 1 --set-b "mesh.axes={'fsdp': 4, 'tensor': 2}"

        ax diverge tiny --set-b "model.**.compute_dtype=bfloat16" --tolerance 1e-2

        ax diverge runs/tiny --save here.npz      (then, elsewhere: ax diverge here.npz runs/tiny)

        ax diverge smollm2-135m ./SmolLM2-135M    (a folder in Hugging Face's form)
    """
    with explained(debug=debug):
        from ._diverge import DivergeCommand, Side

        only_save = b is None and not overrides_b and devices_b is None and save is not None
        DivergeCommand(
            a=Side(a, tuple(overrides_a or ()), devices_a),
            b=None if only_save else Side(a if b is None else b, tuple(overrides_b or ()), devices_b),
            overrides=tuple(overrides or ()),
            on=on,
            data=tuple(data or ()),
            num_rows=rows,
            length=length,
            seed=seed,
            cpu_devices=cpu_devices,
            tolerance=tolerance,
            save=save,
            everything=everything,
        )()


@app.command(name="list")
def list_recipes() -> None:
    """Show the recipes."""
    with explained(debug=False):
        from ._list import list_recipes as run_list

        run_list()


def main() -> None:
    """The entry point of the ``ax`` command."""
    app()
