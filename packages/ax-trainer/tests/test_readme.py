"""The README's examples run as they stand."""

import re
from pathlib import Path


def test_readme() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL)
    assert blocks
    names: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        exec(block, names)
