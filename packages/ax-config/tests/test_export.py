"""Plain data, JSON and YAML: other tools read what we meant. PyYAML and json are the judges."""

from __future__ import annotations

import json
import math

import pytest
import yaml
from ax_config import Config, TextError, config_for, to_json, to_plain, to_yaml, values_of
from hypothesis import given
from hypothesis import strategies as st
from things import Bulb, Colour, House, Room, Size, house, paint
from trees import parts


def test_the_shape() -> None:
    room = Room.Config(name="hall", lamp=Bulb.Config(watts=3), size=Size(1, 2.0), tags=("a",), notes={"$x": 1})
    del room.use
    assert to_plain(room) == {
        "$new": "things:Room.Config",
        "name": "hall",
        "lamp": {"$new": "things:Bulb.Config", "watts": 3, "colour": {"$enum": "things:Colour.WARM"}},
        "size": {"$data": "things:Size", "width": 1, "depth": 2.0},
        "dimmer": {"$partial": "things:linear"},
        "use": {"$open": True},
        "tags": ["a"],
        "notes": {"$$x": 1},
    }
    call = config_for(paint)("red", 2, b"\x00\xff", Colour.COLD, math.sqrt)
    assert to_plain(call)["layers"] == [{"$bytes": "AP8="}, {"$enum": "things:Colour.COLD"}, {"$name": "math:sqrt"}]
    with pytest.raises(TextError, match="can't be imported"):
        to_plain(House.Config(check=lambda x: x))


def test_yaml_reads_as_a_person_would_write_it() -> None:
    room = Room.Config(name="one\ntwo", notes={"on": 1, "a b": 2}, tags=("1e3", "x", ""))
    assert to_yaml(room) == (
        "$new: things:Room.Config\n"
        "name: |-\n  one\n  two\n"
        "lamp:\n  $new: things:Candle.Config\n  power: 1.0\n"
        "size:\n  $data: things:Size\n  width: 3\n  depth: 2.5\n"
        "dimmer:\n  $partial: things:linear\n"
        "use: null\n"
        'tags: ["1e3", x, ""]\n'
        'notes:\n  "on": 1\n  "a b": 2\n'
    )


ODD = [
    *[
        "yes",
        "No",
        "on",
        "null",
        "~",
        "true",
        "1",
        "0x1",
        "1e3",
        "1_0",
        ".inf",
        "nan",
        "2020-01-01",
        "1:30",
        "",
        " ",
        "=",
        "<<",
    ],
    *[
        "- a",
        "a: b",
        "a #b",
        "#",
        "|",
        "> x",
        "'q'",
        '"',
        "\\",
        "{a}",
        "[a]",
        "&a",
        "*a",
        "!a",
        "%a",
        "@a",
        "`a",
        "?",
        "a:",
        ":a",
    ],
    *[
        "a\nb",
        "a\nb\n",
        "a\n\nb",
        "\na",
        "a\n ",
        " a\nb",
        "a\n  b\nc",
        "\ta\nb",
        "a\rb",
        "a\x85b",
        "a\u2028b",
        "\ufeff",
        "\x7f",
    ],
    *["é", "😀", "\ud800", "x" * 200, "$new", "a\n\n"],
]
numbers = st.sampled_from([1e-05, -1e-05, 1e16, 1e22, -0.0, math.inf, -math.inf, 5e-324, 0.1, 10**30, -7, True, None])
scalars = numbers | st.floats(allow_nan=False) | st.integers() | st.text() | st.sampled_from(ODD) | st.none()
nested = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(ODD) | st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(nested)
def test_yaml_and_json_say_what_plain_data_says(value: object) -> None:
    config = config_for(paint)("red", 1, value)
    plain = to_plain(config)
    assert repr(yaml.safe_load(to_yaml(config))) == repr(plain)
    assert repr(json.loads(to_json(config))) == repr(plain)
    (to_json(config) + to_yaml(config)).encode()


@given(parts)
def test_whole_trees_too(config: Config[object]) -> None:
    plain = to_plain(config)
    assert repr(yaml.safe_load(to_yaml(config))) == repr(plain) == repr(json.loads(to_json(config)))
    values = values_of(config)
    assert [name for name, value in plain.items() if name in values and value != {"$open": True}] == list(values)


def test_nan_is_written() -> None:
    config = config_for(paint)("red", 1, math.nan)
    assert "layers: [.nan]" in to_yaml(config)
    assert math.isnan(yaml.safe_load(to_yaml(config))["layers"][0])


def test_every_string_alone() -> None:
    for text in ODD:
        assert yaml.safe_load(to_yaml(house().clone(lamps={text: Bulb.Config(room=text)}))) == to_plain(
            house().clone(lamps={text: Bulb.Config(room=text)})
        ), repr(text)
