"""What goes wrong with a checkpoint that is nobody's mistake in a config."""

from __future__ import annotations


class CheckpointError(RuntimeError):
    """A checkpoint can't be written or read; the message names it, the reason, and what is still good."""
