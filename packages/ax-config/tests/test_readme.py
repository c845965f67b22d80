"""The README's examples run as they stand."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

BLOCKS = re.findall(r"^```python\n(.*?)^```", (Path(__file__).parents[1] / "README.md").read_text(), re.M | re.S)


def test_the_examples_run_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BLOCKS
    module = types.ModuleType("readme")
    monkeypatch.setitem(sys.modules, "readme", module)
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), module.__dict__)
