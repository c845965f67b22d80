"""The agent and the package itself stay light: no JAX, no third party."""

from __future__ import annotations

import subprocess
import sys

_LIGHT = """
import sys
import ax_runtime, ax_runtime.agent, ax_runtime.protocols
heavy = {"jax", "numpy", "orbax", "tensorboardX", "absl", "prometheus_client", "wandb", "mlflow"} & {name.split(".")[0] for name in sys.modules}
assert not heavy, heavy
"""

_LAZY = """
import sys
import ax_runtime.checkpoint, ax_runtime.tensorboard, ax_runtime.prometheus, ax_runtime.wandb, ax_runtime.mlflow
heavy = {"orbax", "tensorstore", "tensorboardX", "google", "prometheus_client", "wandb", "mlflow"} & {name.split(".")[0] for name in sys.modules}
assert not heavy, heavy
"""


def test_the_agent_needs_the_standard_library_alone() -> None:
    subprocess.run([sys.executable, "-c", _LIGHT], check=True)


def test_libraries_wait_for_their_use() -> None:
    subprocess.run([sys.executable, "-c", _LAZY], check=True)
