"""JAX on the CPU, should a config ask for it."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
