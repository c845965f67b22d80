"""The examples run as a stranger would run them: as programs, in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(("name", "least", "files"), [("digits", 85.0, 1_797), ("sounds", 80.0, 500)])
def test_it_learns_from_files(tmp_path: Path, name: str, least: float, files: int) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), str(tmp_path)]
    paths = [str(EXAMPLES), *filter(None, sys.path)]  # for a session may leave out the folder of a script
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split("%")[0]) >= least
    assert len([*tmp_path.glob("t*/*/*.png"), *tmp_path.glob("t*/*/*.wav")]) == files
