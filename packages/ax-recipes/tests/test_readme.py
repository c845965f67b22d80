"""The README's examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

BLOCKS = re.findall(r"^```python\n(.*?)^```", (Path(__file__).parents[1] / "README.md").read_text(), re.M | re.S)


def test_the_examples_run() -> None:
    assert BLOCKS
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
