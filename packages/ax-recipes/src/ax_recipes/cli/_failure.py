"""What the user sees when something goes wrong: one clear message, and exit code 2, for what is theirs to mend."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS)


def _is_explained(error: BaseException) -> bool:
    """Whether the message is likely to tell the user what to mend; all else deserves its traceback.

    A ValueError counts: what is wrong with data, folders, meshes and layers is of that kind. One that a library raised for
    a mistake of ours looks the same, which is why the message ends with how to see where it came from.
    """
    from ax_config import ConfigError
    from ax_runtime.checkpoint import CheckpointError
    from ax_trainer import CheckpointError as SaveError
    from ax_trainer import NonFiniteError

    kinds = (ValueError, ConfigError, CheckpointError, SaveError, NonFiniteError)
    return isinstance(error, kinds) or (isinstance(error, OSError) and error.errno in _DISK)


@contextmanager
def explained(*, debug: bool) -> Iterator[None]:
    """Turn errors that are the user's to mend into a message and exit code 2."""
    try:
        yield
    except KeyboardInterrupt:
        print("stopped at once; the last checkpoint is intact", file=sys.stderr)
        raise typer.Exit(130) from None
    except Exception as error:
        if debug or not _is_explained(error):
            raise
        print(f"ax: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        print("(--debug shows where this came from)", file=sys.stderr)
        raise typer.Exit(2) from None
