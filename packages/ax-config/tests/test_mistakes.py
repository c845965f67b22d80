"""Every mistake in `mistakes/` is found when the program runs, by the error and the words that its docstring holds.

That mypy and pyright find it too is tested for the workspace as a whole: a package's own tests need no type checker.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import ax_config
import pytest

TOPICS = sorted({path.stem for path in (Path(__file__).parent / "mistakes").glob("*.py")} - {"world", "right"})


def functions(topic: str) -> list[Callable[[], object]]:
    module = importlib.import_module(f"mistakes.{topic}")
    members = inspect.getmembers(module, inspect.isfunction)
    return [f for name, f in members if f.__module__ == module.__name__ and not name.startswith("_")]


@pytest.mark.parametrize("mistake", [pytest.param(f, id=f"{t}-{f.__name__}") for t in TOPICS for f in functions(t)])
def test_a_mistake_is_found_with_its_place(mistake: Callable[[], object]) -> None:
    kind, _, words = (mistake.__doc__ or "").partition(": ")
    assert words
    if kind == "Nothing":
        mistake()
        return
    error = getattr(ax_config, kind, None) or getattr(builtins, kind)
    with pytest.raises(error, match=re.escape(words)) as caught:
        mistake()
    assert caught.type is error


@pytest.mark.parametrize("use", functions("right"), ids=lambda f: f.__name__)
def test_what_is_right_runs(use: Callable[[], object]) -> None:
    use()
