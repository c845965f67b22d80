"""The parser, and what all commands share: how mistakes are told, and what the exit status says."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import cast

from ax_config._errors import ConfigError

from . import _completion, _diff, _explain, _golden, _show, _sweep

_EPILOG = """\
A SOURCE is module:function, module:function(num_steps=10), module:variable, or a file that holds the text of a config.
The current directory can be imported from.

examples:
  ax-config show my.recipes:small
  ax-config show my.recipes:small model.norm --format tree --help-fields
  ax-config diff my.recipes:small my.recipes:large
  ax-config diff my.recipes:small --set "model.**.dropout=0.1"
  ax-config explain my.recipes:small model.dim
  ax-config golden check my.recipes:ALL --dir goldens
  ax-config sweep my.recipes:small "model.dim=256,512" "**.dropout=0,0.1"
  eval "$(ax-config completion bash)"

exit status: 0 fine, 1 differences or drift, 2 bad use
"""

_COMMANDS = (_show, _diff, _explain, _golden, _sweep, _completion)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    whole = argparse.ArgumentParser(
        prog="ax-config",
        description="Look at, compare, explain and vary configs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--colour", choices=["auto", "always", "never"], default="auto", help="default: on a terminal")
    shared.add_argument("--debug", action="store_true", help="show the whole traceback of a mistake")
    for module in _COMMANDS:
        module.add(commands, shared)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if words[:1] == ["_complete"]:
        return _completion.complete(parser(), words[1:])
    args = parser().parse_args(words)
    try:
        status = cast("Callable[[argparse.Namespace], int]", args.run)(args)
        sys.stdout.flush()
    except BrokenPipeError:  # somebody saw enough, as in `ax-config show … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as e:
        if args.debug:
            raise
        told = str(e) if isinstance(e, ConfigError) else f"{type(e).__name__}: {e} (--debug shows where)"
        print("; ".join([f"ax-config: {told}", *getattr(e, "__notes__", ())]), file=sys.stderr)
        return 2
    return status
