"""Fields, checks, ownership and building."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import dataclass
from typing import NamedTuple

import ax_config
import numpy as np
import pytest
from ax_config import (
    REQUIRED,
    ConfigError,
    ConflictError,
    FieldTypeError,
    MissingFieldError,
    UnknownFieldError,
    dumps,
    field,
    fields_of,
    get_at,
    loads,
    path_of,
    set_at,
    values_of,
)
from things import Bulb, Candle, Cellar, House, Room, Size, house


def test_a_nested_config_builds_the_class_it_is_nested_in() -> None:
    room = Room.Config(name="hall").build(owner="Ada")
    assert isinstance(room, Room)
    assert isinstance(room.lamp, Candle)
    assert room.lamp.cfg.room == "hall"
    assert room.owner == "Ada"
    assert room.light() == 1.0


def test_building_leaves_the_config_alone_and_hands_out_a_copy() -> None:
    config = Room.Config(name="hall")
    room = config.build()
    room.cfg.name = "kitchen"
    assert config.name == "hall"
    with pytest.raises(MissingFieldError, match=r"lamp\.room is not set"):
        print(config.lamp.room)  # type: ignore[attr-defined]


def test_unknown_names_are_refused_with_the_nearest_legal_one() -> None:
    config = house()
    with pytest.raises(
        UnknownFieldError, match=r"rooms\[1\]\.lamp \(Bulb\.Config\) has no field 'wats'; did you mean watts\?"
    ):
        config.rooms[1].lamp.wats = 3  # type: ignore[attr-defined]
    with pytest.raises(UnknownFieldError, match="did you mean"):
        Room.Config(name="x", lmap=Candle.Config())  # type: ignore[call-arg]
    with pytest.raises(UnknownFieldError):
        print(config.hight)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", 3),
        ("name", None),
        ("lamp", "candle"),
        ("lamp", Bulb),
        ("size", 3),
        ("use", "cook"),
        ("tags", ["a"]),
        ("tags", (1,)),
        ("notes", {"a": "b"}),
        ("notes", {1: 1}),
        ("dimmer", 2.0),
    ],
)
def test_wrong_types_are_refused_with_the_path(name: str, value: object) -> None:
    config = house()
    before = values_of(config.rooms[0])
    with pytest.raises(FieldTypeError, match=rf"rooms\[0\]\.{name}"):
        setattr(config.rooms[0], name, value)
    assert values_of(config.rooms[0]) == before


def test_an_int_in_a_float_field_becomes_a_float_and_a_bool_does_not() -> None:
    config = House.Config(height=3)
    assert isinstance(config.height, float)
    with pytest.raises(FieldTypeError, match="height wants float, got True"):
        config.height = True
    with pytest.raises(FieldTypeError):
        Bulb.Config(watts=1.5)  # type: ignore[arg-type]


def test_values_that_no_config_holds_are_refused() -> None:
    class Loose(ax_config.Config[object]):
        anything: object = None

    with pytest.raises(FieldTypeError, match="no config holds a set"):
        Loose(anything={1})
    with pytest.raises(FieldTypeError, match="no config holds a object"):
        Loose(anything=object())


def test_assigning_a_config_copies_it() -> None:
    lamp = Bulb.Config(watts=1)
    a, b = Room.Config(name="a", lamp=lamp), Room.Config(name="b", lamp=lamp)
    lamp.watts = 2
    assert a.lamp == b.lamp == Bulb.Config(watts=1)
    assert a.lamp is not b.lamp
    a.lamp = b.lamp
    assert a.lamp is not b.lamp


def test_containers_are_copied_too() -> None:
    rooms = [Room.Config(name="a")]
    notes = {"n": 1}
    config = House.Config(rooms=tuple(rooms))
    config.rooms[0].notes = notes
    notes["n"] = 2
    rooms[0].name = "z"
    assert config.rooms[0].name == "a"
    assert config.rooms[0].notes == {"n": 1}


def test_a_replaced_child_leaves_the_tree() -> None:
    config = Room.Config(name="a", lamp=Bulb.Config())
    old = config.lamp
    assert path_of(old) == "lamp"  # type: ignore[arg-type]
    config.lamp = Candle.Config()
    assert path_of(old) == ""  # type: ignore[arg-type]


def test_a_field_without_a_default_is_asked_for_at_once_and_an_open_one_at_build() -> None:
    with pytest.raises(MissingFieldError, match="no value for name"):
        Room.Config()  # type: ignore[call-arg]
    with pytest.raises(MissingFieldError, match="required and not set: room"):
        Candle.Config().build()
    assert Candle.Config().build(room="hall").cfg.room == "hall"


def test_missing_fields_deep_in_the_tree_carry_their_path() -> None:
    with pytest.raises(MissingFieldError, match=r"required and not set: wall\.lamp\.room"):
        Cellar.Config().build()


def test_a_parent_that_disagrees_with_a_set_field_is_a_conflict() -> None:
    config = Room.Config(name="hall", lamp=Candle.Config(room="cellar"))
    with pytest.raises(ConflictError, match=r"lamp\.room is 'cellar', but its parent builds it with 'hall'"):
        config.build()


def test_runtime_names_that_nobody_takes_are_refused() -> None:
    with pytest.raises(UnknownFieldError, match=r"'ownr'.*did you mean owner\?"):
        Room.Config(name="hall").build(ownr="Ada")


def test_a_config_that_describes_nothing_says_so() -> None:
    class Lonely(ax_config.Config[int]):
        value: int = 1

    class Number(ax_config.Config[int]):
        value: int = 1

        def make(self, **extras: object) -> int:
            return self.value

    with pytest.raises(ConfigError, match="describes nothing"):
        Lonely().build()
    assert Number(value=3).build() == 3


def test_shared_defaults_and_reserved_names_are_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="default_factory"):

        class Shared(ax_config.Config[object]):
            lamp: Candle.Config = Candle.Config()

    with pytest.raises(TypeError, match="'build'"):

        class Reserved(ax_config.Config[object]):
            build: int = 1  # type: ignore[assignment]


def test_deleting_opens_a_field() -> None:
    config = Bulb.Config(watts=3)
    del config.watts
    with pytest.raises(MissingFieldError):
        config.build(room="hall")
    assert config.build(room="hall", watts=7).cfg.watts == 7


def test_copies_are_deep_and_equal() -> None:
    config = house()
    for twin in (config.clone(), copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert twin == config
        twin.rooms[0].name = "other"
        assert config.rooms[0].name == "hall"
        assert path_of(twin.rooms[1].lamp) == "rooms[1].lamp"  # type: ignore[arg-type]
    assert config.clone(height=9.0).height == 9.0


def test_fields_are_inherited_in_order_and_can_be_described() -> None:
    class Base(ax_config.Config[object]):
        a: int = 1

    class Derived(Base):
        b: int = field(default=2, help="the second")

    assert list(fields_of(Derived)) == ["a", "b"]
    assert fields_of(Derived())["b"].help == "the second"
    assert Derived(a=4, b=5) != Base(a=4)


def test_a_config_of_another_result_is_refused_where_a_class_is_wanted() -> None:
    class Wall:
        class Config(ax_config.Config["Wall"]):
            lamp: ax_config.Buildable[Bulb] = field(default_factory=Bulb.Config)

    Wall.Config(lamp=Bulb.Config())
    with pytest.raises(FieldTypeError, match="lamp wants Buildable"):
        Wall.Config(lamp=Candle.Config())  # type: ignore[arg-type]


def test_repr_is_the_constructor_call() -> None:
    config = Room.Config(name="hall", lamp=Bulb.Config(watts=3), size=Size(1))
    assert repr(config).startswith("Room.Config(name='hall', lamp=Bulb.Config(watts=3")


class Box:
    """Holds anything."""

    class Config(ax_config.Config["Box"]):
        value: object = None
        ratio: float = 1.0

    def __init__(self, cfg: Config, /) -> None: ...


class Pair(NamedTuple):
    left: int
    right: int


@dataclass(frozen=True)
class Bag:
    items: object


def test_lists_and_dicts_can_be_set_but_not_changed() -> None:
    config = Box.Config(value={"a": [1, 2]})
    with pytest.raises(TypeError, match="read-only: assign a new dict"):
        config.value["b"] = 1  # type: ignore[index]  # object
    with pytest.raises(TypeError, match="read-only: assign a new list"):
        config.value["a"].append(3)  # type: ignore[index]  # object
    assert config.value == {"a": [1, 2]}
    taken = copy.deepcopy(config.value)
    taken["b"] = 1  # a copy is a plain dict
    set_at(config, "value['a'][0]", 9)
    assert config.value == {"a": [9, 2]}


def test_what_could_change_behind_a_configs_back_is_refused() -> None:
    for value, words in (
        (Bag(items=[1]), r"value: a dataclass in a config holds values that can't change, but Bag\.items is \[1\]"),
        (Bag(items=(1, Bag(items={}))), "Bag.items is"),
        (Pair(1, 2), "value: a Pair would lose its names"),
        ({1: 2}, "keys of a dict in a config are strings"),
        (object(), "no config holds a object"),
        ({1, 2}, "no config holds a set"),
    ):
        with pytest.raises(FieldTypeError, match=words):
            Box.Config(value=value)
    assert Box.Config(value=Bag(items=(1, "a"))).value == Bag(items=(1, "a"))


def test_numpys_numbers_become_plain_ones_and_dtypes_are_values() -> None:
    config = Box.Config(value=np.float64(2.0), ratio=np.float64(0.5))
    assert (type(config.value), type(config.ratio)) == (float, float)
    config.value = np.dtype("float32")
    again = loads(dumps(config))
    assert again == config
    assert get_at(again, "value") == np.dtype("float32")
    with pytest.raises(FieldTypeError, match="ratio wants float"):
        config.ratio = np.float32(0.5)  # type: ignore[assignment]  # no float


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
        (math.nan, float("nan"), True),
        ((1,), (True,), False),
        ([], (), False),
    ],
)
def test_equality_is_that_of_the_texts(one: object, other: object, equal: bool) -> None:
    a, b = Box.Config(value=one), Box.Config(value=other)
    assert (a == b) is (dumps(a) == dumps(b)) is equal


def test_required_opens_a_field() -> None:
    config = Candle.Config(room=REQUIRED)
    config.room = "hall"
    config.room = REQUIRED
    with pytest.raises(MissingFieldError, match="room is not set"):
        _ = config.room
    assert config.build(room="attic").cfg.room == "attic"
    with pytest.raises(UnknownFieldError, match="did you mean room"):
        config.rom = REQUIRED  # type: ignore[attr-defined]  # the mistake that is tested


def test_a_part_that_lacks_a_method_is_refused() -> None:
    with pytest.raises(
        FieldTypeError, match=r"lamp wants Buildable\[Lamp\], got .*: it builds a Box, which has no light"
    ):
        Room.Config(name="hall", lamp=Box.Config())  # type: ignore[arg-type]  # the mistake that is tested
