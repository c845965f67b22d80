"""``ax-config golden``: the files that hold the text of every config that matters."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ax_config import golden
from ax_config._source import configs_from

from ._terminal import GREEN, RED, paint, wants_colour


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "golden",
        parents=[shared],
        help="compare configs with their files, or write these",
        description="check: what differs, exit status 1 if anything does. write: accept it. show: one line a config.",
        allow_abbrev=False,
    )
    parser.add_argument("action", choices=["check", "write", "show"])
    parser.add_argument(
        "configs",
        metavar="CONFIGS",
        help="module:mapping of names to configs or functions that return them, or module:function that returns one",
    )
    parser.add_argument("--dir", type=Path, default=Path("goldens"), help="where the files are (default: goldens)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do it."""
    colour = wants_colour(args.colour)
    configs = configs_from(args.configs)
    command = f"ax-config golden write {shlex.quote(args.configs)} --dir {shlex.quote(args.dir.as_posix())}"
    if args.action == "write":
        drifts = golden.write(configs, args.dir, command=command)
    else:
        drifts = golden.check(configs, args.dir)
    if args.action == "show":
        states = {drift.name: _state(drift) for drift in drifts}
        for name in sorted({*configs, *states}):
            print(f"{name}  {paint(states.get(name, 'as it was'), RED if name in states else GREEN, colour=colour)}")
        return 0
    for drift in drifts:
        print(drift.render_accepted(colour=colour) if args.action == "write" else drift.render(colour=colour))
    if args.action == "write":
        return 0
    if drifts:
        print(f"\nto accept: {command}")
    return 1 if drifts else 0


def _state(drift: golden.Drift) -> str:
    num = len(drift.changes)
    return f"{drift.kind}, {num} change{'s' if num > 1 else ''}" if num else drift.kind
