"""The config that a command is about: a source, what is applied to it, and what is overridden in it."""

from __future__ import annotations

import argparse

from ax_config._config import Config
from ax_config._modifier import applied
from ax_config._source import config_from, modifier_from
from ax_config.overrides import Assignment, assignment, from_environment, from_file, override

SOURCE_HELP = "module:function, module:function(num_steps=10), module:variable, or a file of text"


def add_source(parser: argparse.ArgumentParser, name: str = "source", **more: str) -> None:
    """Add a positional argument for a source."""
    parser.add_argument(name, metavar=name.upper(), help=SOURCE_HELP, **more)  # type: ignore[arg-type]  # nargs is a string here


def add_changes(parser: argparse.ArgumentParser) -> None:
    """Add the options that change the config; they are applied in the order of this list."""
    group = parser.add_argument_group("changes, in this order")
    group.add_argument(
        "--apply",
        action="append",
        default=[],
        metavar="MODIFIER",
        help='a modifier, "module:name" or "module:name(key=value)"; repeat for more',
    )
    group.add_argument(
        "--set-file",
        action="append",
        default=[],
        metavar="FILE",
        help="overrides from a file: lines path = value, .toml or .json",
    )
    group.add_argument(
        "--env", metavar="PREFIX", help="overrides from the environment: lines in PREFIX, and PREFIX__path=value"
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="set a value; the path may be a glob; repeat for more",
    )


def is_changed(args: argparse.Namespace) -> bool:
    """Whether any option changes the config."""
    return bool(args.apply or args.set_file or args.env or args.set)


def changed(config: Config[object], args: argparse.Namespace) -> Config[object]:
    """The config with all changes made."""
    for modifier in args.apply:
        config = applied(modifier_from(modifier), config.clone())
    assignments: list[Assignment] = []
    for file in args.set_file:
        assignments += from_file(file)
    if args.env:
        assignments += from_environment(args.env)
    assignments += [assignment(text, "--set") for text in args.set]
    return override(config, assignments)


def config_of(args: argparse.Namespace) -> Config[object]:
    """The config of a command with one source."""
    return changed(config_from(args.source), args)
