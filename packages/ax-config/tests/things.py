"""A small world to describe: a house of rooms, each lit by some lamp."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import ax_config
from ax_config import REQUIRED, Buildable, field, partial_for


class Lamp(Protocol):
    def light(self) -> float: ...


class Colour(enum.Enum):
    WARM = "warm"
    COLD = "cold"


@dataclass(frozen=True)
class Size:
    width: int
    depth: float = 2.5


class Candle:
    class Config(ax_config.Config["Candle"]):
        room: str = REQUIRED
        power: float = 1.0

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def light(self) -> float:
        return self.cfg.power


class Bulb:
    class Config(ax_config.Config["Bulb"]):
        room: str = REQUIRED
        watts: int = 60
        colour: Colour = Colour.WARM

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def light(self) -> float:
        return self.cfg.watts / 10


def linear(x: float, *, slope: float = 1.0) -> float:
    return x * slope


def paint(colour: str, coats: int = 2, *layers: object, gloss: bool = False) -> tuple[object, ...]:
    return (colour, coats, layers, gloss)


class Room:
    class Config(ax_config.Config["Room"]):
        name: str
        lamp: Buildable[Lamp] = field(default_factory=Candle.Config)
        size: Size = Size(3)
        dimmer: Buildable[Callable[[float], float]] = field(default_factory=lambda: partial_for(linear))
        use: Literal["sleep", "work"] | None = None
        tags: tuple[str, ...] = ()
        notes: dict[str, int] = field(default_factory=dict)

    def __init__(self, cfg: Config, /, *, owner: str = "") -> None:
        self.cfg, self.owner = cfg, owner
        self.lamp = cfg.lamp.build(room=cfg.name)
        self.dimmer = cfg.dimmer.build()

    def light(self) -> float:
        return self.dimmer(self.lamp.light())


class House:
    class Config(ax_config.Config["House"]):
        rooms: tuple[Room.Config, ...] = ()
        lamps: dict[str, Buildable[Lamp]] = field(default_factory=dict, role="lamp")
        height: float = 2.5
        check: Callable[[float], float] | None = None

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg
        self.rooms = [room.build() for room in cfg.rooms]


class Wall:
    class Config(ax_config.Config["Wall"]):
        lamp: Candle.Config = field(default_factory=Candle.Config)

    def __init__(self, cfg: Config, /) -> None:
        self.lamp = cfg.lamp.build()


class Cellar:
    class Config(ax_config.Config["Cellar"]):
        wall: Wall.Config = field(default_factory=Wall.Config)

    def __init__(self, cfg: Config, /) -> None:
        self.wall = cfg.wall.build()


def house() -> House.Config:
    return House.Config(
        rooms=(Room.Config(name="hall"), Room.Config(name="study", lamp=Bulb.Config(watts=40), use="work")),
        lamps={"porch": Bulb.Config(room="porch")},
    )


def raise_roof(tree: House.Config, *, by: float) -> House.Config:
    return tree.clone(height=tree.height + by)
