"""Selection, replacement, overrides and modifiers."""

from __future__ import annotations

import pytest
from ax_config import (
    FieldTypeError,
    NoMatchError,
    config_for,
    describes,
    dumps,
    get_at,
    leaves,
    map_values,
    override,
    partial_for,
    replace,
    role,
    select,
    set_at,
    walk,
)
from things import Bulb, Candle, Colour, House, Room, house, linear


def test_walk_gives_parents_first() -> None:
    assert [path for path, _ in walk(house())] == [
        "",
        "rooms[0]",
        "rooms[0].lamp",
        "rooms[0].dimmer",
        "rooms[1]",
        "rooms[1].lamp",
        "rooms[1].dimmer",
        "lamps['porch']",
    ]


def test_get_and_set_by_path() -> None:
    config = house()
    assert get_at(config, "") is config
    assert get_at(config, "rooms[1].lamp.watts") == 40
    assert get_at(config, "lamps['porch'].room") == "porch"
    set_at(config, "lamps['porch'].watts", 5)
    set_at(config, "rooms[0]", Room.Config(name="new"))
    assert get_at(config, "lamps[porch].watts") == 5
    assert config.rooms[0].name == "new"
    for path in ("rooms[7]", "rooms[0].lamp[0]", "lamps['prch']", "rooms[0].name.x", "rooms[["):
        with pytest.raises(NoMatchError):
            get_at(config, path)
    with pytest.raises(FieldTypeError):
        set_at(config, "rooms[0]", Bulb.Config())


@pytest.mark.parametrize(
    ("target", "paths"),
    [
        (Bulb, ["rooms[1].lamp", "lamps['porch']"]),
        (Bulb.Config, ["rooms[1].lamp", "lamps['porch']"]),
        ("rooms[*].lamp", ["rooms[0].lamp", "rooms[1].lamp"]),
        ("**.lamp", ["rooms[0].lamp", "rooms[1].lamp"]),
        (describes(linear), ["rooms[0].dimmer", "rooms[1].dimmer"]),
        (role("lamp"), ["rooms[0].lamp", "rooms[1].lamp", "lamps['porch']"]),
        (role("dimmer"), ["rooms[0].dimmer", "rooms[1].dimmer"]),
        (lambda node: isinstance(node, Room.Config) and node.use == "work", ["rooms[1]"]),
    ],
)
def test_select(target: object, paths: list[str]) -> None:
    assert [path for path, _ in select(house(), target)] == paths  # type: ignore[arg-type]


def test_replace_is_pure_and_needs_a_match() -> None:
    config = house()
    before = config.clone()
    brighter = replace(config, Candle, Bulb.Config(watts=100))
    assert config == before
    assert get_at(brighter, "rooms[0].lamp") == Bulb.Config(watts=100)
    assert isinstance(brighter.build(), House)
    with pytest.raises(NoMatchError, match=r"selects nothing in House\.Config"):
        replace(brighter, Candle, Bulb.Config())
    with pytest.raises(NoMatchError, match=r"did you mean"):
        replace(brighter, "rooms[1].lampe", Bulb.Config())


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("height=3", "height", 3.0),
        ("rooms[1].lamp.watts=1_000", "rooms[1].lamp.watts", 1000),
        ("rooms[1].lamp.watts=1e3", "rooms[1].lamp.watts", 1000),
        ("rooms[1].lamp.colour=cold", "rooms[1].lamp.colour", Colour.COLD),
        ("rooms[0].name=12", "rooms[0].name", "12"),
        ("rooms[0].use=none", "rooms[0].use", None),
        ("rooms[0].use=sleep", "rooms[0].use", "sleep"),
        ("rooms[0].tags=('a', 'b')", "rooms[0].tags", ("a", "b")),
        ("rooms[0].notes={'a': 1}", "rooms[0].notes", {"a": 1}),
    ],
)
def test_overrides_are_read_by_the_fields_type(text: str, path: str, value: object) -> None:
    result = get_at(override(house(), [text]), path)
    assert result == value
    assert isinstance(result, type(value))


def test_override_globs_and_mistakes() -> None:
    assert {node.watts for _, node in select(override(house(), ["**.watts=7"]), Bulb)} == {7}  # type: ignore[attr-defined]
    with pytest.raises(NoMatchError, match=r"did you mean .*rooms\[1\]\.lamp\.watts"):
        override(house(), ["rooms[1].lamp.wats=7"])
    with pytest.raises(NoMatchError, match=r"did you mean .*watts"):
        override(house(), ["watts=7"])
    with pytest.raises(NoMatchError, match="matches no field"):
        override(house(), ["**.wats=7"])
    with pytest.raises(NoMatchError, match="expected path=value"):
        override(house(), ["height"])
    with pytest.raises(FieldTypeError, match="'height=tall': height wants float"):
        override(house(), ["height=tall"])


def test_function_configs_are_replaced_like_any_other() -> None:
    config = replace(house(), describes(linear), partial_for(linear, slope=0.5))
    assert config.rooms[0].build().light() == 0.5
    assert config_for(linear)(1.0) != partial_for(linear)


def test_map_values_gives_a_new_tree() -> None:
    config = house()
    before = dumps(config)
    taller = map_values(config, lambda path, value: 9.0 if path == "height" else value)
    assert dumps(config) == before
    assert taller == config.clone(height=9.0)
    assert map_values(config, lambda path, value: value) == config
    with pytest.raises(FieldTypeError, match=r"rooms\[0\]\.name wants str"):
        map_values(config, lambda path, value: 3 if path == "rooms[0].name" else value)
    assert dict(leaves(config))["rooms[1].lamp.watts"] == 40


def test_a_role_is_what_the_field_says_and_is_named_when_there_is_none() -> None:
    with pytest.raises(NoMatchError, match=r"role\('lmap'\) selects nothing in House\.Config; did you mean lamp"):
        replace(house(), role("lmap"), Candle.Config())


def test_a_star_in_brackets_is_any_key() -> None:
    config = House.Config(lamps={"a.b]": Bulb.Config(), "c": Bulb.Config()}, rooms=house().rooms)
    assert [path for path, _ in select(config, "lamps[*]")] == ["lamps['a.b]']", "lamps['c']"]
    assert [path for path, _ in select(config, "*[*]")] == ["rooms[0]", "rooms[1]", "lamps['a.b]']", "lamps['c']"]
    assert [path for path, _ in select(config, "rooms[*].lamp")] == ["rooms[0].lamp", "rooms[1].lamp"]
    assert select(config, "rooms[?].lamp") == select(config, "rooms[*].lamp")
