"""What the command shows: text with colours where there is somebody to see them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from ax_config._config import Config, fields_of
from ax_config._text import OPEN, Part, Writer

BOLD, DIM, CYAN, GREEN, RED = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[32m", "\x1b[31m"
_END = "\x1b[0m"


def wants_colour(choice: str) -> bool:
    """Whether to colour: ``always``, ``never``, or on a terminal that NO_COLOR doesn't forbid."""
    if choice == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return choice == "always"


def paint(text: str, ink: str, *, colour: bool) -> str:
    """The text in a colour, or as it is."""
    return f"{ink}{text}{_END}" if colour and text else text


def tree_lines(path: str, value: object, *, colour: bool, with_help: bool) -> Iterator[str]:
    """A value and all that is below it: a line each, indented, the values of one config aligned."""
    writer = Writer()
    head, parts = writer.told(value)
    label = "" if path == "." else f"{path}  "
    yield paint(label, BOLD, colour=colour) + paint(head, CYAN, colour=colour)
    yield from _below(value, parts, writer, "  ", colour=colour, with_help=with_help)


def _below(
    value: object, parts: list[Part], writer: Writer, indent: str, *, colour: bool, with_help: bool
) -> Iterator[str]:
    width = max((len(step.removeprefix(".")) for step, _ in parts), default=0)
    helps = {name: field.help for name, field in fields_of(value).items()} if isinstance(value, Config) else {}
    for step, item in parts:
        name = step.removeprefix(".")
        head, below = writer.told(item)
        ink = CYAN if isinstance(item, Config) else DIM if item is OPEN else ""
        text = paint(head, ink, colour=colour) if ink else head
        about = paint(f"  # {helps[name]}", DIM, colour=colour) if with_help and helps.get(name) else ""
        yield f"{indent}{name:<{width}}  {text}{about}"
        yield from _below(item, below, writer, f"{indent}  ", colour=colour, with_help=with_help)
