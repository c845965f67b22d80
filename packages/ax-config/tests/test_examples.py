"""The examples run as a stranger would run them: as programs, in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "sklearn_experiment.py"), *arguments]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # the matrices are small
    return subprocess.run(command, cwd=folder, env={**os.environ, **threads}, capture_output=True, text=True)


def test_a_scikit_learn_experiment(tmp_path: Path) -> None:
    done = run(tmp_path, "folds=3", "model.C=100")  # which is none of those that the sweep tries
    assert done.returncode == 0, done.stderr
    table, difference, reloaded = done.stdout.split("\n\n")
    scores = [(name, float(score)) for name, score in (line.rsplit(None, 1) for line in table.splitlines())]
    assert len(dict(scores)) == 8
    assert {"C=0.1", "forest,max_depth=2,scaler=None"} <= dict(scores).keys()
    assert scores == sorted(scores, key=lambda score: -score[1])
    assert 0.9 < scores[0][1] <= 1.0
    assert difference.startswith(f"{scores[0][0]} differs from the base in:\n  ~ ")
    assert reloaded.strip() == f"reloaded from best.config: {scores[0][1]:.4f}"
    text = (tmp_path / "best.config").read_text()
    assert text.startswith(". = new __main__:Experiment.Config\ndata = call sklearn.datasets:load_wine\n")
    assert "\nfolds = 3\n" in text


def test_a_slip_on_its_command_line(tmp_path: Path) -> None:
    done = run(tmp_path, "model.c=0.1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("there is no 'model.c' in the config; did you mean model.C")
    assert len(done.stderr.splitlines()) == 1
