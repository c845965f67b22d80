"""The command, a corpus, and options that make the default recipe small."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside this file

from command import SMALL, Ax


@pytest.fixture
def ax(tmp_path: Path) -> Ax:
    return Ax(tmp_path)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few modules of the standard library, as a user's folder."""
    folder = tmp_path_factory.mktemp("corpus")
    library = Path(os.__file__).parent
    for name in ("argparse", "ast", "bisect", "calendar", "cmd", "csv", "dis", "enum", "functools", "heapq", "inspect"):
        (folder / f"{name}.py").write_bytes((library / f"{name}.py").read_bytes())
    return folder


@pytest.fixture(scope="session")
def small(corpus: Path) -> Sequence[str]:
    """The options of a small run on the corpus."""
    return ("train", "--data", str(corpus), "--steps", "40", *SMALL)
