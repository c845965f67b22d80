"""The folder of one run: everything that the run leaves behind, and the proof of what made it.

    runs/first/
      config.txt         the effective config; a run with another config can't continue here
      environment.json   every start of the run: when, by which command, on what, with which package versions, compiler
                         flags and commit of the folder that it was started in
      lock               held by the process at work; names its pid
      …                  checkpoints, metrics: whatever the job writes

Files are replaced at once or not at all, so a kill at any moment leaves a folder that opens again. The lock belongs to
the process: it vanishes with it, however it ends.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import json
import os
import platform
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Self, final

from ._atomic import write_atomically

_PACKAGES = (
    *("ax-config", "ax-kernels", "ax-mesh", "ax-layers", "ax-input", "ax-trainer", "ax-runtime", "ax-inference"),
    *("ax-recipes", "jax", "jaxlib", "numpy", "optax", "orbax-checkpoint", "tensorstore", "grain", "libtpu"),
)
_VARIABLES = ("JAX_", "XLA_", "LIBTPU_", "TPU_", "NCCL_", "NEURON_", "CUDA_VISIBLE_DEVICES")
"""How the names of environment variables begin that change what a job computes, or on what."""
_MOST_LINES_SHOWN = 20


class RunFolderError(ValueError):
    """A run folder can't be used; the message says which, why, and what to do."""


def never(_line: str, /) -> bool:
    """No line of the config may differ."""
    return False


@final
class RunFolder:
    """A run folder, open and locked until ``close`` or the end of the ``with`` block.

    ``config`` is the text of the effective config. When the folder holds another one, each line that differs must
    satisfy ``may_differ`` (the number of steps, say, may grow); the new text then replaces the old. ``packages`` names
    the distributions whose versions are recorded, ``environment`` is recorded of this start beside what is always (of JSON's
    types: the devices, say, which only the job knows).

    Raises RunFolderError when the folder is in use, belongs to another config, can't be created or written, or the disk
    is full.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        config: str,
        may_differ: Callable[[str], bool] = never,
        packages: Iterable[str] = _PACKAGES,
        environment: Mapping[str, object] | None = None,
    ) -> None:
        self._path = Path(path).absolute()
        # Before the folder is locked: git is a process of its own, which must not hold the lock should we be killed now.
        start = {**_start(packages), **(environment or {})}
        with _explained(self._path):
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self._path)
        _close_in_forked_children(self)
        try:
            with _explained(self._path):
                changed = self._write_config(config, may_differ)
                self._record(start, changed)
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> Path:
        """Where it is, absolute."""
        return self._path

    def close(self) -> None:
        """Release the lock; closing again does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write_config(self, config: str, may_differ: Callable[[str], bool]) -> list[str]:
        """Write ``config`` unless a config stands there that forbids it; the lines that changed."""
        file = self._path / "config.txt"
        if not file.exists():
            write_atomically(file, config.encode())
            return []
        changed = _differing_lines(file.read_text(encoding="utf-8"), config)
        forbidden = [line for line in changed if not may_differ(line[2:])]
        if forbidden:
            more = len(forbidden) - _MOST_LINES_SHOWN
            shown = "\n".join(f"  {line}" for line in forbidden[:_MOST_LINES_SHOWN])
            raise RunFolderError(
                f"{self._path} belongs to a run with another config (- there, + now):\n{shown}"
                + (f"\n  … and {more} more lines" if more > 0 else "")
                + "\nContinue it with its own config, or choose another run folder."
            )
        if changed:
            write_atomically(file, config.encode())
        return changed

    def _record(self, start: Mapping[str, object], config_changes: list[str]) -> None:
        file = self._path / "environment.json"
        starts = [*_earlier_starts(file), {**start, "config_changes": config_changes}]
        write_atomically(file, (json.dumps({"starts": starts}, indent=1) + "\n").encode())


def _start(packages: Iterable[str]) -> Mapping[str, object]:
    """What is recorded of this process."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "pid": os.getpid(),
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "argv": sys.argv,
        "variables": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_VARIABLES)},
        "packages": _versions(packages),
        "git": _commit(Path.cwd()),
    }


def read_config(folder: str | os.PathLike[str], /) -> Mapping[str, str]:
    """The config in a run's folder, path by path: the lines that say ``path = value``. Empty when there is none yet."""
    file = Path(folder) / "config.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {path: value for path, equals, value in (line.partition(" = ") for line in lines) if equals and path != "."}


def read_starts(folder: str | os.PathLike[str], /) -> list[Mapping[str, object]]:
    """Every start of the run in a folder, as ``RunFolder`` recorded it; none when nothing was started there.

    Raises ValueError when the record is none of ours.
    """
    return _earlier_starts(Path(folder) / "environment.json")


def _earlier_starts(file: Path) -> list[Mapping[str, object]]:
    if not file.exists():
        return []
    content = json.loads(file.read_bytes())
    starts = content.get("starts") if isinstance(content, dict) else None
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise ValueError(f'{file}: wanted an object with a list "starts" of objects')
    return starts


def _commit(folder: Path) -> Mapping[str, object] | None:
    """The commit of the repository that ``folder`` lies in, and whether its files differ from that; None without one."""
    try:
        commit, changes = (
            subprocess.run(
                ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True
            ).stdout
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or one that doesn't answer
        return None
    return {"commit": commit.strip(), "uncommitted_changes": bool(changes)}


def _lock(folder: Path) -> int:
    """The open lock file, locked by this process alone."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    except BlockingIOError:
        holder = os.read(lock, 32).decode() or "unknown"
        os.close(lock)
        raise RunFolderError(
            f"{folder} is in use by the process with pid {holder}: wait until it ends, stop it (kill {holder}), "
            "or choose another run folder"
        ) from None
    except OSError:
        os.close(lock)
        raise
    return lock


def _close_in_forked_children(folder: RunFolder) -> None:
    """A forked child shares the lock: should it outlive us, it would keep the folder locked for nobody."""
    weak = weakref.ref(folder)

    def close() -> None:
        shared = weak()
        if shared is not None:
            shared.close()

    os.register_at_fork(after_in_child=close)


def _versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those that are installed."""
    found = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _differing_lines(old: str, new: str) -> list[str]:
    """Lines of either text that the other lacks, marked "- " and "+ "."""
    # The first two lines are the diff's head.
    diff = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))[2:]
    return [f"{line[0]} {line[1:]}" for line in diff if line[0] in "-+"]


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn what the operating system says into what the user can do about it."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise RunFolderError(f"{folder} can't be a run folder: {error.filename} is a file, not a folder") from error
    except OSError as error:
        advice = {
            errno.ENOSPC: "the disk is full: make room, or choose a run folder on another disk",
            errno.EDQUOT: "the disk quota is used up: make room, or choose a run folder on another disk",
            errno.EFBIG: "the file size limit is reached (ulimit -f): raise it",
            errno.EACCES: "no permission to write there: change it, or choose another run folder",
            errno.EPERM: "no permission to write there: change it, or choose another run folder",
            errno.EROFS: "the file system is read-only: choose another run folder",
        }.get(error.errno or 0, error.strerror or str(error))
        raise RunFolderError(f"can't write the run folder {folder}: {advice}") from error
    except ValueError as error:
        if isinstance(error, RunFolderError):
            raise
        raise RunFolderError(f"{folder} holds a file that is none of ours: {error}") from error
