"""Checkpoints by Orbax; needs the extra ``orbax``."""

from ._errors import CheckpointError as CheckpointError
from ._orbax import OrbaxCheckpointer as OrbaxCheckpointer
