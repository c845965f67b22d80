"""The semantic diff: what changed as a person would say it, with exact paths, on lists that grew and classes that changed."""

from __future__ import annotations

import pytest
from ax_config import Change, Config, config_for, diff, dumps, flatten, get_at, override, render_diff
from hypothesis import given
from hypothesis import strategies as st
from test_text import houses
from things import Bulb, Candle, House, Room, house, linear, paint


def told(before: Config[object], after: Config[object]) -> list[str]:
    return [str(change) for change in diff(before, after)]


def street(*names: str) -> House.Config:
    return House.Config(rooms=tuple(Room.Config(name=name) for name in names))


def test_a_class_change_is_followed_by_what_came_and_went() -> None:
    changed = override(house(), ["rooms[1].lamp.watts=41"])
    changed.rooms[0].lamp = Bulb.Config()
    assert told(house(), changed) == [
        "~ rooms[0].lamp = new things:Candle.Config → new things:Bulb.Config",
        "- rooms[0].lamp.power = 1.0",
        "+ rooms[0].lamp.watts = 60",
        "+ rooms[0].lamp.colour = enum things:Colour.WARM",
        "~ rooms[1].lamp.watts = 40 → 41",
    ]


def test_fields_that_both_classes_have_are_compared() -> None:
    before, after = house(), house()
    before.rooms[0].lamp = Candle.Config(room="hall", power=2.0)
    after.rooms[0].lamp = Bulb.Config(room="hall", watts=2)
    assert not [line for line in told(before, after) if "room =" in line]


@pytest.mark.parametrize("position", range(4))
def test_an_inserted_item_is_one_insertion(position: int) -> None:
    names = ["a", "b", "c"]
    longer = [*names[:position], "new", *names[position:]]
    changes = diff(street(*names), street(*longer))
    assert {(c.before, c.path.partition(".")[0]) for c in changes} == {(None, f"rooms[{position}]")}
    assert changes[0].after == "new things:Room.Config"
    gone = diff(street(*longer), street(*names))
    assert [(c.path, c.before) for c in gone] == [(c.path, c.after) for c in changes]


def test_items_that_moved_and_changed_keep_both_paths() -> None:
    before, after = street("a", "b", "c"), street("a", "new", "b", "c")
    for room in after.rooms:
        room.notes = {"seen": 1}  # no item is the same on both sides
    moved = {c.path: c.path_before for c in diff(before, after) if c.before is not None}
    assert moved == {
        "rooms[0].notes": "",
        "rooms[2].notes": "rooms[1].notes",
        "rooms[3].notes": "rooms[2].notes",
    }
    assert "~ rooms[2].notes (was rooms[1].notes) = {} → {'seen': 1}" in told(before, after)


def test_lists_too_long_to_align_are_compared_by_position() -> None:
    before, after = street(*(f"a{i}" for i in range(110))), street(*(f"b{i}" for i in range(111)))
    changes = diff(before, after)
    assert len([c for c in changes if c.before is not None]) == 110
    assert changes[-1].path == "rooms[110].notes"


def test_opened_fields_and_kinds_of_containers() -> None:
    before, after = house(), house()
    del after.height
    assert told(before, after) == ["~ height = 2.5 → open"]
    one, two = config_for(paint)("red", 1, [1, 2]), config_for(paint)("red", 1, (1, 2))
    assert told(one, two) == ["~ layers = ([1, 2],) → ((1, 2),)"]


@given(houses, houses)
def test_the_changes_turn_one_text_into_the_other(a: House.Config, b: House.Config) -> None:
    """Paths of items may move, so the claim is checked where no list changed its length."""
    changes = diff(a, b)
    assert (changes == []) == (dumps(a) == dumps(b))
    for change in changes:
        where_a, where_b = change.path_before or change.path, change.path
        if change.before is not None:
            assert flatten(a)[where_a] == change.before
        if change.after is not None:
            assert flatten(b)[where_b] == change.after
    if len(a.rooms) == len(b.rooms) and list(a.lamps) == list(b.lamps):
        gone = {c.path for c in changes if c.after is None}
        lines = {path: text for path, text in flatten(a).items() if path not in gone}
        lines |= {c.path: c.after for c in changes if c.after is not None}
        assert lines == flatten(b)


@given(houses, st.data())
def test_a_tree_with_a_room_more_differs_by_that_room(tree: House.Config, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(tree.rooms)))
    longer = tree.clone(rooms=(*tree.rooms[:place], Room.Config(name="a new room"), *tree.rooms[place:]))
    changes = diff(tree, longer)
    assert all(c.before is None for c in changes)
    assert get_at(longer, changes[0].path) == Room.Config(name="a new room")


def test_the_rendering_groups_aligns_and_colours() -> None:
    after = house().clone(height=3.0)
    after.rooms = (*after.rooms, Room.Config(name="attic"))
    after.rooms[0].name = "entrance"
    after.rooms[0].use = "work"
    after.check = linear
    changes = diff(house(), after)
    plain = render_diff(changes, colour=False)
    assert plain.startswith(
        "rooms[0]\n  ~ name  'hall' → 'entrance'\n  ~ use   None → 'work'\n+ rooms[2]: new things:Room.Config\n"
    )
    assert plain.endswith("the root\n  ~ height  2.5 → 3.0\n  ~ check   None → name things:linear\n")
    coloured = render_diff(changes, colour=True)
    assert "\x1b[33m~ height  2.5 → 3.0\x1b[0m" in coloured
    assert "\x1b[32m+ rooms[2]" in coloured
    assert render_diff([Change("a.b", "1", None)], colour=True).count("\x1b[31m") == 1
    assert render_diff([], colour=True) == ""
