"""Golden configs: the text of every config that matters is kept beside the code, so that a review sees what changed.

One file a config, ``FOLDER/NAME.txt``: the text of ``dumps`` under a line that says how to accept a change. Names may have
slashes (``tiny/h100-8``). ``check`` tells what drifted, ``write`` accepts it:

    drifts = golden.check({"small": small, "large": large}, Path("goldens"))

``ax_config.pytest_plugin`` and the command ``ax-config golden`` are built on these two.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from ._config import Config
from ._diff import Change, diff, diff_texts, render_diff
from ._errors import ConfigError
from ._loads import loads
from ._text import dumps
from ._tree import path_prefix

Configs = Mapping[str, Callable[[], Config[object]]]
"""Functions that make the configs, by the names of their files."""

_HEADER = "# golden config; accept a change with: "
_NAME = re.compile(r"[\w.+=,@-]+(/[\w.+=,@-]+)*", re.ASCII)


class Drift(NamedTuple):
    """A file that doesn't say what its config is.

    Attributes:
        name: The config's name.
        file: Its file.
        kind: "drifted"; "missing": there is no file; "stale": there is a file, but no such config.
        changes: What drifted; of the other kinds none.
    """

    name: str
    file: Path
    kind: Literal["drifted", "missing", "stale"]
    changes: tuple[Change, ...] = ()

    def __str__(self) -> str:
        """What is wrong, without colours."""
        return self.render(colour=False)

    def render(self, *, colour: bool) -> str:
        """What is wrong, for a person."""
        if self.kind == "missing":
            return f"{self.name}: there is no {self.file}"
        if self.kind == "stale":
            return f"{self.name}: no config has this name any more, but there is {self.file}"
        return "\n".join([f"{self.name}: differs from {self.file}", *self._diff(colour)])

    def render_accepted(self, *, colour: bool) -> str:
        """What ``write`` did about it."""
        done = {"missing": "new file", "stale": "removed", "drifted": "accepted"}[self.kind]
        return "\n".join([f"{self.name}: {done} {self.file}", *self._diff(colour)])

    def _diff(self, colour: bool) -> list[str]:
        return [f"    {line}" for line in render_diff(self.changes, colour=colour).splitlines()]


def check(configs: Configs, folder: Path) -> list[Drift]:
    """Compare configs with their files.

    Args:
        configs: All the configs of the folder.
        folder: Where the files are.

    Returns:
        What doesn't agree: nothing, if all is well.
    """
    drifts = [drift for name in configs if (drift := check_one(name, _made(name, configs), folder))]
    return [*drifts, *_stale(configs, folder)]


def check_one(name: str, config: Config[object], folder: Path) -> Drift | None:
    """Compare one config with its file."""
    file = file_of(name, folder)
    if not file.exists():
        return Drift(name, file, "missing")
    before, after = read(file), dumps(config)
    return None if before == after else Drift(name, file, "drifted", tuple(_changes(before, config)))


def write(configs: Configs, folder: Path, *, command: str) -> list[Drift]:
    """Make the files say what the configs are; files of configs that are gone are removed.

    Args:
        configs: All the configs of the folder.
        folder: Where the files are.
        command: How to accept a change; stands at the top of each file.

    Returns:
        What didn't agree before.
    """
    made = {name: _made(name, configs) for name in configs}  # all, before any file is touched
    drifts = [drift for name, config in made.items() if (drift := write_one(name, config, folder, command=command))]
    stale = _stale(configs, folder)
    for drift in stale:
        drift.file.unlink()
        for empty in drift.file.parents[: len(drift.name.split("/")) - 1]:
            with contextlib.suppress(OSError):  # it holds something else
                empty.rmdir()
    return [*drifts, *stale]


def write_one(name: str, config: Config[object], folder: Path, *, command: str) -> Drift | None:
    """Make the file of one config say what it is; returns what it said else."""
    drift = check_one(name, config, folder)
    if drift is not None:
        drift.file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = drift.file.with_name(f"{drift.file.name}.{os.getpid()}.tmp")
        unfinished.write_text(f"{_HEADER}{command}\n{dumps(config)}", encoding="utf-8", newline="\n")
        unfinished.replace(drift.file)
    return drift


def read(file: Path) -> str:
    """The text of the config in a file, without comments."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


def file_of(name: str, folder: Path) -> Path:
    """The file of a config.

    Raises:
        ConfigError: The name is no file's name.
    """
    if not _NAME.fullmatch(name) or any(part.strip(".") == "" for part in name.split("/")):
        raise ConfigError(f"{name!r} can't name a golden config: letters, digits and . + = , @ - _ between slashes")
    return folder / f"{name}.txt"


def _made(name: str, configs: Configs) -> Config[object]:
    try:
        return configs[name]()
    except Exception as e:
        e.add_note(f"in the golden config {name!r}")
        raise


def _stale(configs: Configs, folder: Path) -> list[Drift]:
    found = []
    for file in sorted(folder.rglob("*.txt")):
        name = file.relative_to(folder).with_suffix("").as_posix()
        if name not in configs:
            with file.open(encoding="utf-8") as f:
                if f.readline().startswith(_HEADER):  # else it is somebody's notes
                    found.append(Drift(name, file, "stale"))
    return found


def _changes(before: str, after: Config[object]) -> list[Change]:
    try:
        return diff(loads(before), after)
    except (ConfigError, TypeError, ValueError):  # a class or a field in the file is gone
        return diff_texts(_by_path(before), _by_path(dumps(after)))


def _by_path(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        path = "." if line.startswith(". ") else path_prefix(line)
        found[path or f"line {number}"] = line[len(path) :].removeprefix(" = ")
    return found
