"""Provenance: every value says who set it, where, and what it was before."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest
from ax_config import (
    Modifier,
    NoMatchError,
    chain,
    config_for,
    dumps,
    explain,
    for_each,
    get_at,
    loads,
    modifier_for,
    override,
    replace,
    replacing,
    set_at,
    setting,
)
from things import Bulb, Candle, Colour, House, Room, house, linear

HERE = Path(__file__).name


def line() -> str:
    """Where this is called, as an explanation says it."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{HERE}:{frame.f_back.f_lineno} in {frame.f_back.f_code.co_qualname}"


def brighten(tree: House.Config, *, watts: int) -> House.Config:
    for room in tree.rooms:
        assert isinstance(room.lamp, Bulb.Config)
        room.lamp.watts = watts
    return tree


def test_a_value_set_twice_tells_both_and_what_it_was() -> None:
    config, first = Room.Config(name="hall"), line()
    config.name, second = "attic", line()
    found = explain(config, "name")
    assert found.value == "'attic'"
    assert [(s.how, s.value) for s in found.steps] == [("set", "'attic'"), ("given", "'hall'")]
    assert found.steps[0].where.endswith(second)
    assert found.steps[1].where.endswith(first)


def test_a_default_names_the_line_that_declares_it() -> None:
    (step,) = explain(house(), "rooms[1].lamp.colour").steps
    assert (step.how, step.value) == ("default", "<Colour.WARM: 'warm'>")
    source, number = step.where.partition(" ")[0].split(":")
    assert source.endswith("things.py")
    text = (Path(__file__).parent / "things.py").read_text().splitlines()
    assert "colour: Colour = Colour.WARM" in text[int(number) - 1]


def test_a_copy_knows_what_its_original_knew_and_goes_its_own_way() -> None:
    config = house()
    config.height = 3.0
    twin = config.clone()
    twin.height = 4.0
    assert [s.value for s in explain(config, "height").steps] == ["3.0", "2.5"]
    assert [s.value for s in explain(twin, "height").steps] == ["4.0", "3.0", "2.5"]
    assert [s.how for s in explain(twin, "rooms[0].name").steps] == ["given"]


def test_modifiers_and_overrides_are_named_innermost_first() -> None:
    dim = chain(setting(Bulb, watts=5), modifier_for(brighten, watts=9))
    both = House.Config(rooms=(Room.Config(name="den", lamp=Bulb.Config(watts=1)),))
    changed = override(dim(both), ["**.watts=7"])
    newest, function, setter, given = explain(changed, "rooms[0].lamp.watts").steps
    assert (newest.value, function.value, setter.value, given.value) == ("7", "9", "5", "1")
    assert "**.watts=7" in newest.by[0]
    assert function.where.endswith("in brighten")
    assert [who.partition("(")[0].partition("  ")[0] for who in function.by] == ["modify brighten", "Chain"]
    assert [who.partition("(")[0].partition("  ")[0] for who in setter.by] == ["Setting", "Chain"]
    assert HERE in setter.by[0], "a modifier says where it was made"
    assert str(explain(changed, "rooms[0].lamp.watts")).splitlines()[0] == "rooms[0].lamp.watts = 7"


def test_a_replaced_part_tells_what_stood_there_and_its_history() -> None:
    config = house()
    assert isinstance(config.rooms[1].lamp, Bulb.Config)
    config.rooms[1].lamp.watts = 41
    config = replacing(Bulb, lambda old: Bulb.Config(watts=100))(config)
    config = setting(Bulb, watts=200)(config)
    steps = explain(config, "rooms[1].lamp.watts").steps
    assert [(s.how, s.value) for s in steps] == [
        ("set", "200"),
        ("given", "100"),
        ("replaced", "Bulb.Config → Bulb.Config"),
        ("set", "41"),
        ("given", "40"),
    ]
    assert steps[2].path == "rooms[1].lamp"
    assert any("Replacing" in who for who in steps[2].by)
    swapped = replace(house(), "rooms[1].lamp", Candle.Config(power=3.0))
    (given, replaced) = explain(swapped, "rooms[1].lamp.power").steps
    assert (given.value, replaced.value) == ("3.0", "Bulb.Config → Candle.Config")
    assert "dropped watts" in replaced.by[0]
    assert [s.how for s in explain(swapped, "rooms[1].lamp").steps][:2] == ["set", "given"]


def test_items_of_containers() -> None:
    config = house()
    set_at(config, "rooms[0]", Room.Config(name="new"))
    steps = explain(config, "rooms[0].name").steps
    assert [(s.how, s.value) for s in steps] == [
        ("given", "'new'"),
        (
            "replaced",
            "(Room.Config(name='hall', lamp=Candle.Config(power=1.0), si… → (Room.Config(name='new', lamp=Candle.Config(power=1.0), siz…",
        ),
        ("given", "'hall'"),
    ]
    assert [s.how for s in explain(config, "rooms[1].name").steps] == ["given"], "its neighbour was not replaced"
    assert explain(config, "lamps['porch'].room").value == "'porch'"


def test_opened_filled_and_called() -> None:
    lamp = Candle.Config(room="hall")
    del lamp.room
    assert [s.how for s in explain(lamp, "room").steps] == ["opened", "given"]
    assert explain(lamp, "room").value == "open"
    candle = house().build().rooms[0].lamp
    assert isinstance(candle, Candle)
    (filled,) = explain(candle.cfg, "room").steps
    assert filled.where.endswith("in Room.__init__"), "the parent filled it at build"
    call = config_for(linear)(2.0)
    assert explain(call, "x").steps[0].how == "given"
    (slope,) = explain(call, "slope").steps
    assert slope.how == "default"
    assert "things.py" in slope.where
    with pytest.raises(NoMatchError):
        explain(house(), "rooms[7].name")
    with pytest.raises(AttributeError, match="did you mean name"):
        explain(house(), "rooms[0].nam")


def test_what_was_read_says_so() -> None:
    for again in (loads(dumps(house())), pickle.loads(pickle.dumps(house()))):
        assert explain(again, "rooms[1].lamp.watts").steps[0].how == "read"
        assert explain(again, "rooms[1].lamp.colour").steps[0].how == "default"


def test_a_log_is_bounded() -> None:
    config = Bulb.Config()
    for watts in range(1000):
        config.watts = watts
    assert 1 <= len(explain(config, "watts").steps) <= 258
    assert explain(config, "watts").steps[0].value == "999"


def test_for_each_works_on_parts_as_trees_of_their_own() -> None:
    def taller(room: Room.Config) -> Room.Config:
        room.tags = (*room.tags, "tall")
        return room

    modifier: Modifier = for_each(Room, taller)
    changed = modifier(house())
    assert [get_at(changed, f"rooms[{i}].tags") for i in (0, 1)] == [("tall",), ("tall",)]
    assert house().rooms[0].tags == ()
    cold = for_each(Room, setting(Bulb, colour=Colour.COLD))
    with pytest.raises(NoMatchError):
        cold(house())  # the hall has no bulb
