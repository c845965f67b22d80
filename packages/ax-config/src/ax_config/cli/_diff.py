"""``ax-config diff``: what differs between two configs, or between a config and itself with changes."""

from __future__ import annotations

import argparse

from ax_config._diff import diff, render_diff
from ax_config._errors import ConfigError
from ax_config._source import config_from

from ._terminal import wants_colour
from ._tree import add_changes, add_source, changed, is_changed


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "diff",
        parents=[shared],
        help="what differs between two configs",
        description="What differs between A and B, with the changes made to both. Without B: between A as it is and A "
        "with the changes. The exit status is 1 if anything does.",
        allow_abbrev=False,
    )
    add_source(parser, "a")
    add_source(parser, "b", nargs="?")
    add_changes(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    before = config_from(args.a)
    if args.b is None:
        if not is_changed(args):
            raise ConfigError("diff wants two configs, or one and what to change in it")
        changes = diff(before, changed(before, args))
    else:
        changes = diff(changed(before, args), changed(config_from(args.b), args))
    print(render_diff(changes, colour=wants_colour(args.colour)), end="")
    return 1 if changes else 0
