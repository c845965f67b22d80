"""The README's examples run as written."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_example(block: str) -> None:
    exec(compile(block, str(README), "exec"), {"__name__": "__main__"})


def test_there_are_examples() -> None:
    assert BLOCKS
