"""``ax-config show``: a config, or parts of it, as text, tree, YAML or JSON."""

from __future__ import annotations

import argparse

from ax_config._config import Config
from ax_config._errors import ConfigError, MissingFieldError
from ax_config._export import to_json, to_yaml
from ax_config._override import matching_paths
from ax_config._text import OPEN, Writer
from ax_config._tree import get_at

from ._terminal import tree_lines, wants_colour
from ._tree import add_changes, add_source, config_of


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser("show", parents=[shared], help="show a config, or parts of it", allow_abbrev=False)
    add_source(parser)
    parser.add_argument("path", metavar="PATH", nargs="?", help="show only this part; may be a glob")
    parser.add_argument(
        "--format",
        choices=["text", "tree", "yaml", "json"],
        default="text",
        help="text reads back; tree is for people; yaml and json are for other tools (default: text)",
    )
    parser.add_argument("--help-fields", action="store_true", help="with --format tree: what the fields are for")
    add_changes(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    config = config_of(args)
    paths = ["."] if args.path in (None, ".", "") else matching_paths(config, args.path)
    parts = [(path, _at(config, path)) for path in paths]
    if args.format in ("yaml", "json"):
        export = to_yaml if args.format == "yaml" else to_json
        for path, part in parts:
            if not isinstance(part, Config):
                raise ConfigError(f"{path} is no config, so it can't be shown as {args.format}; try --format text")
            print(export(part), end="")
        return 0
    for path, part in parts:
        if args.format == "tree":
            colour = wants_colour(args.colour)
            for line in tree_lines(path, part, colour=colour, with_help=args.help_fields):
                print(line)
        else:
            lines: list[tuple[str, str]] = []
            Writer().lines(path, part, lines)
            for at, text in lines:
                print(f"{at} = {text}")
    return 0


def _at(config: Config[object], path: str) -> object:
    try:
        return config if path == "." else get_at(config, path)
    except MissingFieldError:
        return OPEN
