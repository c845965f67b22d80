"""Where overrides come from, other than a command line: the environment, and files.

    override(config, [*from_file(path), *from_environment("RUN"), *arguments])

A file is lines ``path = value`` with ``#`` comments, or TOML or JSON, whose tables are followed down the tree as far as there
are configs; a table that meets a dict field is its value. The environment gives lines in a variable, ``RUN="a.b=1"``, and
single values in variables with the path in the name, ``RUN__a__b=1``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ._errors import ConfigError, NoMatchError
from ._override import Assignment as Assignment
from ._override import assignment as assignment
from ._override import override as override


def from_file(path: str | Path) -> list[Assignment]:
    """The overrides in a file: ``.toml``, ``.json``, or lines ``path = value``.

    Raises:
        ConfigError: The file can't be read; the message has its name, and the line as far as it is known.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            import tomllib

            return _of_table(tomllib.loads(text), str(path))
        if path.suffix == ".json":
            import json

            return _of_table(json.loads(text), str(path))
    except (OSError, ValueError) as e:
        raise ConfigError(f"{path}: {e}") from e
    return _of_lines(text, lambda number: f"{path}:{number}")


def from_environment(prefix: str, environ: Mapping[str, str] = os.environ) -> list[Assignment]:
    """The overrides in the environment: the lines of ``PREFIX``, then each ``PREFIX__path__in__tree``, sorted by name."""
    found = _of_lines(environ.get(prefix, ""), lambda number: f"${prefix}, line {number}")
    for name in sorted(environ):
        if name.startswith(f"{prefix}__"):
            path = name.removeprefix(f"{prefix}__").replace("__", ".")
            found.append(Assignment(path, environ[name].strip(), f"${name}"))
    return found


def _of_lines(text: str, source: Callable[[int], str]) -> list[Assignment]:
    return [
        assignment(line.strip(), source(number))
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]


def _of_table(table: object, source: str) -> list[Assignment]:
    if not isinstance(table, dict):
        raise NoMatchError(f"{source}: expected a table of paths and values, got {table!r}")
    return [Assignment(str(key), repr(value), source, typed=True) for key, value in table.items()]
