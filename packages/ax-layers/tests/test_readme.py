"""The README's examples run as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_readme(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text()
    scope: dict[str, object] = {"__name__": "readme"}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "README.md", "exec", dont_inherit=True), scope)
    loss = re.search(r"loss (\S+)", capsys.readouterr().out)
    assert loss is not None
    assert float(loss.group(1)) < 4, "it learns"
