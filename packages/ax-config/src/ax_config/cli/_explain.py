"""``ax-config explain``: who set a value, where, and what it was before."""

from __future__ import annotations

import argparse

from ax_config._explain import Explanation, explain, place
from ax_config._override import matching_paths
from ax_config._provenance import given

from ._terminal import BOLD, paint, wants_colour
from ._tree import add_changes, add_source, config_of


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser("explain", parents=[shared], help="who set a value, and where", allow_abbrev=False)
    add_source(parser)
    parser.add_argument("path", metavar="PATH", help="the value's path; may be a glob")
    add_changes(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    config = config_of(args)
    for path in [""] if args.path == "." else matching_paths(config, args.path):
        first, *rest = str(_without_this_command(explain(config, path))).splitlines()
        print(paint(first, BOLD, colour=wants_colour(args.colour)))
        for line in rest:
            print(line)
    return 0


def _without_this_command(told: Explanation) -> Explanation:
    """What the command line set was set by whoever called ``main``, which is no place in anybody's code."""
    entry = given(())
    assert entry is not None
    here = place(*entry[:2])
    steps = []
    for step in told.steps:
        by = tuple(who.removesuffix(f"  [{here}]") for who in step.by)
        steps.append(step._replace(by=by, where="" if by and step.where == here else step.where))
    return told._replace(steps=tuple(steps))
