"""Runs the ``ax`` command as a user would: as a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SMALL = (
    *("--set", "model.dim=32", "--set", "model.layers.num_layers=2"),
    *("--set", "model.layers.layer.attention.num_heads=2", "--set", "model.layers.layer.attention.num_kv_heads=1"),
    *("--set", "model.layers.layer.attention.head_dim=16", "--set", "model.layers.layer.ffn.hidden_dim=64"),
    *("--set", "input.seq_length=64", "--set", "input.batch_size=8"),
    *("--set", "trainer.evaluate_every=10", "--set", "trainer.checkpoint_every=7"),
    *("--set", "max_validation_batches=8"),
)
"""Options that make the default recipe small enough to be trained in a second."""


CACHE = tempfile.TemporaryDirectory(prefix="ax-e2e-")
"""Where programs are kept that were compiled: nearly all tests run the same few."""


@dataclass(frozen=True)
class Ax:
    """The command, in a working directory, with the environment it needs to be repeatable."""

    folder: Path

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        keep = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS", "COLUMNS")}
        cache = {"XDG_CACHE_HOME": CACHE.name}
        return {**keep, "JAX_PLATFORMS": "cpu", "COLUMNS": "120", **cache, **(extra or {})}

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ax_recipes", *args],
            cwd=self.folder,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, code: int = 0, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        process = self.start(*args, env=env)
        out, err = process.communicate(timeout=300)
        assert process.returncode == code, f"ax {' '.join(args)} gave {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def refuse(self, *args: str, match: str, env: Mapping[str, str] | None = None) -> str:
        """Run what is the user's mistake: one message, no traceback, exit code 2."""
        result = self.run(*args, code=2, env=env)
        assert "Traceback" not in result.stderr + result.stdout, result.stderr
        message = " ".join(result.stderr.split())
        assert re.search(match, message), f"{match!r} is not in {message!r}"
        return message
