"""Overrides: values read by the field's type, from wherever they are written, with messages that name the place."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import things
from ax_config import (
    REQUIRED,
    Config,
    ConfigError,
    FieldTypeError,
    MissingFieldError,
    NoMatchError,
    config_for,
    explain,
    get_at,
    partial_for,
)
from ax_config.overrides import Assignment, from_environment, from_file, override
from things import Bulb, Candle, Colour, House, Room, Size, house, linear, paint
from trees import Branch, Leaf


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rooms[1].lamp=new things:Candle.Config", Candle.Config()),
        ("rooms[0].dimmer=call things:linear", config_for(linear)(REQUIRED)),
        ("rooms[0].dimmer=partial things:linear", partial_for(linear)),
        ("check=name things:linear", linear),
        ("check=things:linear", linear),
        ("rooms[0].size=data things:Size {'width': 4}", Size(4)),
        ("lamps['porch'].watts=1", 1),
        ("lamps[porch].watts=1e3", 1000),
        ("lamps['porch'].colour=cold", Colour.COLD),
        ("lamps['porch'].colour=enum things:Colour.COLD", Colour.COLD),
        ("lamps['porch']=new things:Candle.Config", Candle.Config()),
        ("rooms[0].name=new things:Candle.Config", "new things:Candle.Config"),
        ("rooms[0].notes={'a': 1}", {"a": 1}),
        ("height=inf", float("inf")),
    ],
)
def test_a_value_is_read_by_the_type_of_its_field(text: str, value: object) -> None:
    tree = override(house(), [text])
    assert get_at(tree, text.partition("=")[0]) == value


def test_words_for_dtypes_classes_and_unions() -> None:
    leaf = override(
        Leaf.Config(count=3),
        ["dtype=int8", "kind=builtins:str", "limit=none", "anything=a word", "mode=exact", "count=open"],
    )
    assert (leaf.dtype, leaf.kind, leaf.limit, leaf.anything, leaf.mode) == (
        np.dtype("int8"),
        str,
        None,
        "a word",
        "exact",
    )
    with pytest.raises(MissingFieldError):
        _ = leaf.count


def test_a_new_part_has_its_defaults_and_takes_later_overrides() -> None:
    tree = override(
        Branch.Config(), ["child=call things:paint", "child.colour=red", "child.gloss=true", "child.layers=(1,)"]
    )
    assert tree.child == config_for(paint)("red", 2, 1, gloss=True)
    tree = override(Branch.Config(), ["child=new things:Room.Config", "child.name=x", "child.lamp.power=3"])
    assert tree.child == Room.Config(name="x", lamp=Candle.Config(power=3.0))


def test_globs_reach_items_and_fields() -> None:
    assert [room.name for room in override(house(), ["rooms[*].name=x"]).rooms] == ["x", "x"]
    dark = override(house(), ["rooms[*].lamp=new things:Candle.Config", "lamps[*]=new things:Candle.Config"])
    assert dark.rooms[1].lamp == dark.lamps["porch"] == Candle.Config()
    with pytest.raises(NoMatchError, match=r"'rooms\[\*\].nam' matches no field; did you mean name"):
        override(house(), ["rooms[*].nam=x"])


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("rooms[0].lamp=new things:Chandelier.Config", FieldTypeError, "module things has no Chandelier"),
        ("rooms[0].lamp=new nowhere:X", FieldTypeError, "No module named 'nowhere'"),
        ("rooms[7].name=x", NoMatchError, r"no 'rooms\[7\].name'"),
        ("rooms[0].tags[3]=x", NoMatchError, "no 'rooms"),
        ("rooms[0].use=play", FieldTypeError, r"wants Literal\['sleep', 'work'\] \| None"),
        ("rooms=tuple 2", FieldTypeError, "first line of several"),
    ],
)
def test_mistakes(text: str, error: type[ConfigError], match: str) -> None:
    with pytest.raises(error, match=match):
        override(house(), [text])


LINES = "# what we tried on Monday\nheight = 3\n\n  rooms[0].name = #1\n"


def test_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "monday.txt"
    file.write_text(LINES)
    assert from_file(file) == [
        Assignment("height", "3", f"{file}:2"),
        Assignment("rooms[0].name", "#1", f"{file}:4"),
    ]
    assert override(house(), from_file(file)).rooms[0].name == "#1"
    file.write_text("height = 3\nhight = 4\n")
    with pytest.raises(NoMatchError, match=r"monday.txt:2: there is no 'hight'.*did you mean height"):
        override(house(), from_file(file))
    file.write_text("height = 3\nrooms[0].lamp.power = bright\n")
    with pytest.raises(FieldTypeError, match=r"monday.txt:2 rooms\[0\].lamp.power=bright.*wants float"):
        override(house(), from_file(file))
    file.write_text("height\n")
    with pytest.raises(NoMatchError, match=r"monday.txt:1: 'height': expected path=value"):
        from_file(file)


TOML = """
height = 3
check = "things:linear"
"rooms[*].use" = "sleep"

["rooms[1]"]
name = "library"
tags = ["quiet"]
notes = {books = 7}
lamp = {watts = 5, colour = "cold"}

[lamps.porch]
watts = 6
"""


def test_tables_are_followed_as_far_as_there_are_configs(tmp_path: Path) -> None:
    toml = tmp_path / "run.toml"
    toml.write_text(TOML.replace('tags = ["quiet"]\n', ""))
    tree = override(house(), from_file(toml))
    assert (tree.height, tree.check, tree.rooms[0].use) == (3.0, linear, "sleep")
    assert tree.rooms[1] == Room.Config(
        name="library", notes={"books": 7}, lamp=Bulb.Config(watts=5, colour=Colour.COLD), use="sleep"
    )
    assert tree.lamps["porch"] == Bulb.Config(room="porch", watts=6)
    js = tmp_path / "run.json"
    js.write_text(json.dumps({"lamps": {"porch": {"watts": 6, "room": None}}}))
    with pytest.raises(FieldTypeError, match=r"run.json lamps\['porch'\].room=None"):
        override(house(), from_file(js))


@pytest.mark.parametrize(("name", "text"), [("x.toml", "a = ="), ("x.json", "[1]"), ("x.json", "{"), ("y.txt", None)])
def test_files_that_say_nothing(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=name):
        from_file(tmp_path / name)


def test_the_environment() -> None:
    environ = {"RUN": "height=3\n**.watts=7\n", "RUN__rooms[0]__name": "den", "RUN__height": "4", "RUNNER__x": "1"}
    found = from_environment("RUN", environ)
    assert [each.path for each in found] == ["height", "**.watts", "height", "rooms[0].name"]
    tree = override(house(), found)
    assert (tree.height, tree.rooms[0].name, tree.lamps["porch"]) == (4.0, "den", Bulb.Config(room="porch", watts=7))
    with pytest.raises(NoMatchError, match=r"\$RUN__hight: there is no 'hight'"):
        override(house(), from_environment("RUN", {"RUN__hight": "1"}))


def test_explain_names_the_source() -> None:
    tree = override(house(), [Assignment("height", "3", "--set")])
    assert "by --set height=3" in str(explain(tree, "height"))


def test_one_path_of_many_costs_no_walk() -> None:
    """The time to set a field doesn't grow with the fields around it, beyond that of the copy."""
    big = House.Config(rooms=tuple(Room.Config(name=str(i)) for i in range(1000)))

    def seconds(work: Callable[[], Config[object]]) -> float:
        def once() -> float:
            begin = time.perf_counter()
            work()
            return time.perf_counter() - begin

        return min(once() for _ in range(3))

    assignments = [f"rooms[{i}].lamp.power=2" for i in range(5)]
    assert seconds(lambda: override(big, assignments)) < 2 * seconds(lambda: things.House.Config.clone(big)) + 0.01
