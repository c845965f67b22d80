"""Modifiers are configs, they are pure, and they compose."""

from __future__ import annotations

import pickle
from typing import TypeVar

import pytest
from ax_config import (
    REQUIRED,
    Config,
    ConfigError,
    MissingFieldError,
    Modifier,
    NoMatchError,
    UnknownFieldError,
    chain,
    describes,
    dumps,
    for_each,
    loads,
    modifier_for,
    overriding,
    partial_for,
    replacing,
    role,
    select,
    setting,
    when,
)
from ax_config.testing import check_config, check_modifier
from things import Bulb, Candle, Colour, House, Room, house, linear

ConfigT = TypeVar("ConfigT", bound=Config[object])


class Dim(Modifier):
    """A modifier of its own class."""

    share: float
    rooms: str = "rooms[*]"

    def apply(self, tree: Config[object]) -> Config[object]:
        for _, node in select(tree, role("lamp")):
            if isinstance(node, Bulb.Config):
                node.watts = int(node.watts * self.share)
        return tree


def rename(tree: House.Config, *, to: str, only_first: bool = False) -> House.Config:
    for room in tree.rooms[: 1 if only_first else None]:
        room.name = to
    return tree


def forgets_to_return(tree: ConfigT) -> ConfigT:
    return None  # type: ignore[return-value]  # the mistake that is tested


MODIFIERS = [
    chain(),
    Dim(share=0.5),
    setting(Bulb, watts=3),
    setting(Bulb.Config, colour=Colour.COLD),
    replacing(Candle, Bulb.Config(watts=100)),
    replacing(describes(linear), partial_for(linear, slope=0.5)),
    overriding("**.watts=7", "height=3"),
    modifier_for(rename, to="x"),
    modifier_for(rename, to="x", only_first=True),
    for_each(Room, setting(Room, use="work")),
    when(Bulb, setting(Bulb, watts=1), otherwise=Dim(share=2.0)),
    when("nothing.here", setting(Bulb, watts=1)),
    chain(Dim(share=0.5), chain(setting(Bulb, watts=3), modifier_for(rename, to="y"))),
]


@pytest.mark.parametrize("modifier", MODIFIERS, ids=lambda m: type(m).__qualname__)
def test_every_modifier_is_pure_and_has_a_text(modifier: Modifier) -> None:
    check_modifier(modifier, house())
    check_config(modifier)
    for again in (loads(dumps(modifier)), pickle.loads(pickle.dumps(modifier)), modifier.clone()):
        assert again == modifier
        assert isinstance(again, Modifier)
        assert again(house()) == modifier(house())
    assert modifier.build()(house()) == modifier(house())


def test_chains_are_associative_and_empty_ones_change_nothing() -> None:
    bright, cold, high = (
        replacing(Candle, Bulb.Config(watts=100)),
        setting(Bulb, colour=Colour.COLD),
        setting(House, height=9.0),
    )
    assert chain()(house()) == house()
    assert chain(bright, cold)(house()) == cold(bright(house()))
    assert chain(chain(bright, cold), high)(house()) == chain(bright, chain(cold, high))(house())


def test_plain_functions_are_modifiers_too() -> None:
    def tall(tree: House.Config) -> House.Config:
        tree.height = 4.0
        return tree

    before = house()
    assert chain(tall, setting(Bulb, watts=1))(before).height == 4.0
    assert before == house()


def test_a_modifier_is_modified_like_any_config() -> None:
    both = chain(Dim(share=0.5), setting(Bulb, colour=Colour.COLD))
    brighter = setting(Dim, share=2.0)(both)
    assert brighter(house()).rooms[1].lamp.watts == 80  # type: ignore[attr-defined]  # a bulb
    open_dim = Dim(share=REQUIRED)
    assert open_dim.build(share=2.0)(house()) == Dim(share=2.0)(house())
    with pytest.raises(MissingFieldError, match="Dim: required and not set: share"):
        open_dim(house())
    with pytest.raises(MissingFieldError, match="Dim: required and not set: share"):
        chain(open_dim)(house())


def test_what_matches_nothing_or_returns_nothing_is_an_error() -> None:
    with pytest.raises(NoMatchError, match="Candle selects nothing"):
        chain(replacing(Candle, Bulb.Config()), setting(Candle, power=2.0))(house())
    with pytest.raises(UnknownFieldError, match="did you mean watts"):
        setting(Bulb, wats=3)(house())
    with pytest.raises(ConfigError, match=r"forgets_to_return gave None; .*is there a return"):
        chain(forgets_to_return)(house())
    with pytest.raises(UnknownFieldError, match="neither a field"):
        Dim(share=1.0).build(wattage=3)
    with pytest.raises(UnknownFieldError, match="has no field 'too'"):
        modifier_for(rename, too="x")  # type: ignore[call-arg]  # the mistake that is tested
