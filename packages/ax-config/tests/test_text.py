"""The text of configs: exact, canonical, under public names. And laws on random trees."""

from __future__ import annotations

import math
import textwrap

import numpy as np
import pytest
import trees
from ax_config import (
    Config,
    TextError,
    chain,
    config_for,
    diff,
    dumps,
    fingerprint,
    flatten,
    import_name,
    loads,
    modifier_for,
    partial_for,
    setting,
)
from ax_config.testing import check_config
from hypothesis import given
from hypothesis import strategies as st
from things import Bulb, Candle, Colour, House, Room, Size, house, linear, paint, raise_roof
from trees import Access, Leaf, Mark, Point, parts


def test_the_text_of_a_small_tree() -> None:
    config = Room.Config(name="hall", lamp=Bulb.Config(watts=3), size=Size(1, 2.0), tags=("a",))
    del config.use
    assert dumps(config) == textwrap.dedent(
        """\
        . = new things:Room.Config
        name = 'hall'
        lamp = new things:Bulb.Config
        lamp.watts = 3
        lamp.colour = enum things:Colour.WARM
        size = data things:Size {'width': 1, 'depth': 2.0}
        dimmer = partial things:linear
        use = open
        tags = ('a',)
        notes = {}
        """
    )
    check_config(config)


def test_functions_stand_under_public_names() -> None:
    assert import_name(textwrap.dedent) == "textwrap:dedent"
    assert import_name(Room.Config) == "things:Room.Config"
    from ax_config import Config

    assert import_name(Config) == "ax_config:Config"
    with pytest.raises(TextError, match="can't be imported"):
        dumps(House.Config(check=lambda x: x))


def test_texts_that_are_no_config_name_the_line() -> None:
    for text, match in [
        ("", "empty"),
        ("height = 3.0\n", "line 1"),
        (". = new things:House.Config\nheight = oops(\n", "line 2.*not a value"),
        (". = new things:House.Config\nhight = 3.0\n", "line 2.*did you mean height"),
        (". = new things:House.Config\nheight = 'x'\n", "line 2.*wants float"),
        (". = new things:Nothing.Config\n", "no Nothing"),
        (". = new nowhere_at_all:X\n", "nowhere_at_all"),
    ]:
        with pytest.raises(TextError, match=match):
            loads(text)


def test_a_line_that_is_missing_leaves_the_default() -> None:
    assert loads(". = new things:House.Config\n") == House.Config()


lamps = st.one_of(
    st.builds(Candle.Config, power=st.floats(allow_nan=False)),
    st.builds(Bulb.Config, watts=st.integers(), colour=st.sampled_from(Colour), room=st.text()),
    st.builds(Candle.Config),
)
rooms = st.builds(
    Room.Config,
    name=st.text(),
    lamp=lamps,
    size=st.builds(Size, st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    use=st.sampled_from([None, "sleep", "work"]),
    tags=st.lists(st.text(), max_size=3).map(tuple),
    notes=st.dictionaries(st.text(), st.integers(), max_size=3),
    dimmer=st.floats(allow_nan=False).map(lambda slope: partial_for(linear, slope=slope)),
)
houses = st.builds(
    House.Config,
    rooms=st.lists(rooms, max_size=3).map(tuple),
    lamps=st.dictionaries(st.text(st.characters(codec="ascii")), lamps, max_size=3),
    height=st.floats(allow_nan=False),
    check=st.sampled_from([None, linear]),
)


@given(houses)
def test_every_tree_round_trips_by_value(config: House.Config) -> None:
    check_config(config)


@given(houses, houses)
def test_equal_text_means_equal_trees(a: House.Config, b: House.Config) -> None:
    assert (a == b) == (dumps(a) == dumps(b)) == (fingerprint(a) == fingerprint(b)) == (diff(a, b) == [])


@given(
    st.recursive(
        st.integers() | st.text() | st.booleans() | st.none(), lambda v: st.lists(v) | st.tuples(v), max_leaves=5
    )
)
def test_arguments_of_calls_round_trip(value: object) -> None:
    check_config(config_for(paint)("red", 1, value))


def test_dtypes_flags_and_dataclasses_that_hold_them() -> None:
    leaf = Leaf.Config(
        dtype=np.dtype(">f4"),
        access=Access.READ | Access.WRITE,
        mark=Mark(trees.Colour.COLD, Point(math.inf, "it's\u2028")),
        weights={"a = b": math.nan, "['": -0.0},
        ratio=-0.0,
    )
    lines = flatten(leaf)
    assert lines["dtype"] == "dtype >f4"
    assert lines["access"] == "enum trees:Access.READ|WRITE"
    assert lines["mark"] == "data trees:Mark"
    assert lines["mark.at.x"] == "float inf"
    assert lines["mark.at.label"] == '"it\'s\\u2028"'
    assert lines["weights['a = b']"] == "float nan"
    assert lines["ratio"] == "-0.0"
    check_config(leaf)
    leaf.access = Access(0)
    assert flatten(leaf)["access"] == "enum trees:Access 0"
    check_config(leaf)


def test_dtypes_that_numpy_learns_from_others() -> None:
    assert str(loads(". = new trees:Leaf.Config\ndtype = dtype int8\n").dtype) == "int8"  # type: ignore[attr-defined]
    with pytest.raises(TextError, match=r"line 2.*no dtype 'float33'"):
        loads(". = new trees:Leaf.Config\ndtype = dtype float33\n")


def test_modifiers_have_a_text() -> None:
    modifier = chain(setting("rooms[0]", name="x"), modifier_for(raise_roof, by=2.0))
    assert flatten(modifier)["modifiers[1]"] == "modify things:raise_roof"
    assert loads(dumps(modifier)) == modifier
    assert loads(dumps(modifier))(house()).height == 4.5  # type: ignore[operator]


def test_lines_reach_into_defaults() -> None:
    room = loads(". = new things:Room.Config\nname = 'x'\nlamp.power = 3.0\nuse = open\n")
    assert isinstance(room, Room.Config)
    assert room.lamp == Candle.Config(power=3.0)
    assert "use" not in dumps(room).replace("use = open", "")
    assert room.dimmer == partial_for(linear)


def test_a_container_with_a_part_missing_names_its_line() -> None:
    text = dumps(house())
    assert loads(text.replace("\n", "\r\n")) == house()
    for line, match in [
        ("lamps['porch'] = new things:Bulb.Config", r"lamps\['porch'\].room"),
        ("rooms[1] = new things:Room.Config", r"rooms\[1\].name"),
    ]:
        with pytest.raises(TextError, match=match):
            loads(text.replace(line + "\n", ""))
    with pytest.raises(TextError, match=r"line 2: 'rooms = tuple 3'.*no line for its part \[2\]"):
        loads(text.replace("rooms = tuple 2", "rooms = tuple 3"))


@given(parts, st.data())
def test_whatever_a_text_says_it_is_a_config_or_an_error_with_its_line(
    config: Config[object], data: st.DataObject
) -> None:
    text = dumps(config)
    lines = text.splitlines(keepends=True)
    i = data.draw(st.integers(0, len(lines) - 1))
    others = st.sampled_from([*lines, "", ". = None\n", "x = enum trees:Access 9\n", "x = data trees:Point {'y': 1}\n"])
    at = data.draw(st.integers(0, len(lines[i])))
    garbled = lines[i][:at] + data.draw(st.sampled_from(["", " ", "=", "[0]", "'", ".x", "9"])) + lines[i][at + 1 :]
    lines[i] = data.draw(others | st.just(garbled))
    try:
        again = loads("".join(lines))
    except TextError as e:
        said = str(e)
    else:
        assert loads(dumps(again)) == again
        return
    assert said.startswith(("line ", "there is no config"))
