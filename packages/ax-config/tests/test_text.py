"""The text of configs: exact, canonical, under public names. And laws on random trees."""

from __future__ import annotations

import textwrap

import pytest
from ax_config import TextError, config_for, diff, dumps, fingerprint, import_name, loads, partial_for
from ax_config.testing import check_config
from hypothesis import given
from hypothesis import strategies as st
from things import Bulb, Candle, Colour, House, Room, Size, linear, paint


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
