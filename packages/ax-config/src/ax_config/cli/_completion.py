"""Shell completion: of commands, options and their choices, and of the paths of the config that the line names.

The shells' scripts hand the words up to the cursor to the hidden ``ax-config _complete`` and offer what it prints.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence

from ax_config._config import Config
from ax_config._override import settable_paths
from ax_config._source import config_from
from ax_config._tree import walk

_BASH = r"""_ax_config() {
    local IFS=$'\n'
    COMPREPLY=($(ax-config _complete --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    case "${COMPREPLY[0]}" in
        *.|*=|*]) [[ ${#COMPREPLY[@]} -eq 1 ]] && compopt -o nospace ;;
    esac
}
complete -o default -F _ax_config ax-config
"""

_ZSH = r"""#compdef ax-config
_ax_config() {
    local -a found ends
    found=("${(@f)$(ax-config _complete "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( $#found == 0 )); then
        _files
        return
    fi
    ends=(${(M)found:#*[.=\]]})
    found=(${found:#*[.=\]]})
    (( $#ends )) && compadd -S '' -- $ends
    (( $#found )) && compadd -- $found
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _ax_config "$@"
else
    compdef _ax_config ax-config
fi
"""

_FISH = r"""function __ax_config_complete
    set -l words (commandline -opc) (commandline -ct)
    ax-config _complete $words 2>/dev/null
end
complete -c ax-config -a '(__ax_config_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_PATHS_OF = {"show": 1, "explain": 1, "sweep": 1}
"""Commands with paths among their arguments, and which argument is the first of them; 0 is the source."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completion",
        parents=[shared],
        help="a script that teaches your shell to complete",
        description='bash: put eval "$(ax-config completion bash)" into ~/.bashrc. zsh: the same with zsh, after compinit, '
        "in ~/.zshrc. fish: ax-config completion fish | source, in config.fish.",
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=sorted(_SCRIPTS))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[args.shell], end="")
    return 0


def complete(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Print what may stand in the place of the last word: of ``words``, or of ``--line LINE`` as bash has it."""
    if words[:1] == ["--line"]:
        words = _split(words[1])
    try:
        found = _candidates(parser, words)
    except Exception:  # a source that can't be loaded: there is nothing to offer, and nobody to tell
        return 1
    for candidate in found:
        print(candidate)
    return 0


def _split(line: str) -> list[str]:
    """The words of an unfinished line; the last is the one at the cursor, maybe empty."""
    import shlex

    for closing in ("", "'", '"'):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return [*words, ""] if not closing and line[-1:].isspace() else words
    return [*line.split(), ""]


def _candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    *before, current = words[1:]
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    if not before:
        return _starting(current, [*commands.choices, *parser._option_string_actions])
    command: argparse.ArgumentParser | None = commands.choices.get(before[0])
    if command is None:
        return []
    options = command._option_string_actions
    positional: list[str] = []
    expecting: argparse.Action | None = None
    for word in before[1:]:
        if expecting is not None:
            expecting = None
        elif word.startswith("-"):
            option = options.get(word)
            expecting = option if option is not None and option.nargs != 0 else None
        else:
            positional.append(word)
    if expecting is not None:
        if expecting.dest == "set" and positional:
            return _paths(current, config_from(positional[0]), "=")
        return _starting(current, map(str, expecting.choices or ()))
    if current.startswith("-"):
        return _starting(current, options)
    arguments = [action for action in command._actions if not action.option_strings]
    if len(positional) >= _PATHS_OF.get(before[0], len(words)):
        return _paths(current, config_from(positional[0]), "=" if before[0] == "sweep" else "")
    if len(positional) < len(arguments):
        return _starting(current, map(str, arguments[len(positional)].choices or ()))
    return []


def _starting(current: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(current)]


def _paths(current: str, config: Config[object], end: str) -> list[str]:
    """The paths that begin so, as far as the next dot: a tree is completed level by level."""
    parents = {path for path, _ in walk(config)}
    found: dict[str, None] = {}
    for path in [*settable_paths(config), *(parent for parent in parents if parent.endswith("]"))]:
        path = _QUOTED.sub(r"[\1]", path)
        if not path.startswith(current):
            continue
        stop = next((i for i in range(len(current), len(path)) if path[i] in ".["), len(path))
        if stop == len(path):
            found[path + end] = None
        elif path[stop] == ".":
            found[path[: stop + 1]] = None
        else:
            found[path[: path.index("]", stop) + 1]] = None
    return sorted(found)


_QUOTED = re.compile(r"\['([\w-]+)'\]")
"""Keys that need no quotes, which shells have their own use for."""
