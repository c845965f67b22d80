"""What goes wrong with a checkpoint that is nobody's mistake in a config."""

from __future__ import annotations

import os
import re


class CheckpointError(RuntimeError):
    """A checkpoint can't be written or read; the message names it, the reason, and what is still good."""


def os_reason(error: Exception) -> str | None:
    """What the operating system said, None when it isn't its error. Tensorstore has it only in its text."""
    if isinstance(error, OSError):
        return error.strerror
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return None if code is None else os.strerror(int(code[1]))
