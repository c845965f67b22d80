"""What every config and every modifier has to satisfy; run it on yours.

``check_config(MyThing.Config(...))`` and ``check_modifier(my_modifier, config)`` raise AssertionError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ._config import Config
from ._diff import diff
from ._loads import loads
from ._text import dumps, fingerprint
from ._tree import walk

ConfigT = TypeVar("ConfigT", bound=Config[object])


def check_config(config: Config[object]) -> None:
    """Its text gives it back, and its copies share nothing with it."""
    text = dumps(config)
    again = loads(text)
    assert again == config, f"loads(dumps(config)) differs: {list(map(str, diff(config, again)))}"
    assert dumps(again) == text, "the text is not canonical: dumping what was loaded gives another text"
    twin = config.clone()
    assert twin == config
    assert fingerprint(twin) == fingerprint(config), "a copy has another fingerprint"
    shared = {id(node) for _, node in walk(config)} & {id(node) for _, node in walk(twin)}
    assert not shared, "a copy shares configs with the original"


def check_modifier(modifier: Callable[[ConfigT], ConfigT], config: ConfigT) -> None:
    """It leaves its argument alone, gives the same each time, and a tree that shares nothing with the argument."""
    before = dumps(config)
    first, second = modifier(config), modifier(config)
    assert dumps(config) == before, "the modifier changed its argument"
    assert first == second, "the modifier gives another tree each time"
    shared = {id(node) for _, node in walk(config)} & {id(node) for _, node in walk(first)}
    assert not shared, "the new tree shares configs with the old one"
    check_config(first)
