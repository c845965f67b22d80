"""Random trees over a small world that holds every kind of value that a config may hold, at every place."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

import ax_config
import numpy as np
from ax_config import (
    REQUIRED,
    Buildable,
    Config,
    Modifier,
    Target,
    chain,
    config_for,
    describes,
    field,
    fields_of,
    for_each,
    modifier_for,
    overriding,
    partial_for,
    replacing,
    role,
    select,
    set_at,
    setting,
    values_of,
    walk,
    when,
)
from hypothesis import strategies as st

ConfigT = TypeVar("ConfigT", bound=Config[object])


class Colour(enum.Enum):
    WARM = "warm"
    COLD = "cold"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Point:
    x: float
    label: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mark:
    colour: Colour
    at: Point


def scale(x: float, *, by: float = 1.0, note: str = "") -> float:
    return x * by + len(note)


def gather(first: object, *rest: object, **others: object) -> tuple[object, ...]:
    return (first, rest, others)


class Leaf:
    class Config(ax_config.Config["Leaf"]):
        width: int = REQUIRED
        flag: bool = False
        count: int = 0
        ratio: float = 1.0
        name: str = ""
        raw: bytes = b""
        limit: int | None = None
        mode: Literal["fast", "exact"] = "fast"
        colour: Colour = Colour.WARM
        access: Access = Access.READ
        dtype: np.dtype[np.generic] = field(default_factory=lambda: np.dtype("float32"))
        point: Point = Point(0.0)
        mark: Mark | None = None
        function: Callable[..., object] = scale
        kind: type = int
        names: tuple[str, ...] = ()
        sizes: list[int] = field(default_factory=list[int])
        weights: dict[str, float] = field(default_factory=dict[str, float])
        anything: object = None

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg


class Branch:
    class Config(ax_config.Config["Branch"]):
        name: str = ""
        child: Buildable[object] | None = None
        row: tuple[Buildable[object], ...] = ()
        queue: list[Buildable[object]] = field(default_factory=list[Buildable[object]])
        named: dict[str, Buildable[object]] = field(default_factory=dict[str, Buildable[object]])
        anything: object = field(default_factory=Leaf.Config)

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg


texts = st.text(st.characters(exclude_categories=()), max_size=4) | st.sampled_from(
    ["'", '"', "'\"", "a.b", "[0]", "]", "['", "=", " ", "", "*", "open", "new x:y", "#", "\n", "\\", "None", "1e3"]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-2, 2)
    | st.floats()
    | st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf")])
    | texts
    | st.binary(max_size=3)
)
points = st.builds(Point, st.floats(), texts, st.lists(texts, max_size=2).map(tuple))
marks = st.builds(Mark, st.sampled_from(Colour), points)
accesses = st.sampled_from([Access.READ, Access.WRITE, Access.READ | Access.WRITE, Access(0)])
dtypes = st.sampled_from(["float32", "int8", "bool", ">f4", "complex64"]).map(np.dtype)
functions = st.sampled_from([scale, gather, len, Leaf, Branch.Config.clone])
classes = st.sampled_from([int, Leaf, Leaf.Config, Colour, Point])
things = scalars | st.sampled_from(Colour) | accesses | points | marks | dtypes | functions | classes


def _containers(items: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    few = st.lists(items, max_size=3)
    return few | few.map(tuple) | st.dictionaries(texts, items, max_size=3)


values = st.recursive(things, _containers, max_leaves=4)
"""Values that hold no config."""


_confusable = st.sampled_from([0, 0.0, -0.0, False, 1, 1.0, True, float("nan"), "", b"", Point(0.0), Point(-0.0)])
confusable = st.recursive(_confusable, _containers, max_leaves=4)
"""Values many of which Python takes for equal, though they are not the same."""


def twins_of(value: object) -> st.SearchStrategy[object]:
    """Values that are easily taken for ``value``: of another type, in another order, or with such a value inside."""
    twins: st.SearchStrategy[object] = st.just(value) | _confusable
    if isinstance(value, dict):
        twins |= st.just(dict(reversed(value.items())))
        for key, item in value.items():
            twins |= st.builds(_with_item, st.just(value), st.just(key), twins_of(item))
    elif isinstance(value, list | tuple):
        twins |= st.sampled_from([list(value), tuple(value)])
        for i, item in enumerate(value):
            twins |= st.builds(_with_item, st.just(value), st.just(i), twins_of(item))
    return twins


def _with_item(container: object, key: object, item: object) -> object:
    if isinstance(container, dict):
        return {**container, key: item}
    assert isinstance(container, list | tuple)
    items = [item if i == key else old for i, old in enumerate(container)]
    return items if isinstance(container, list) else tuple(items)


KINDS: dict[str, st.SearchStrategy[object]] = {
    "width": st.integers(),
    "flag": st.booleans(),
    "count": st.integers(),
    "ratio": st.floats() | st.integers(-2, 2),
    "name": texts,
    "raw": st.binary(max_size=3),
    "limit": st.none() | st.integers(),
    "mode": st.sampled_from(["fast", "exact"]),
    "colour": st.sampled_from(Colour),
    "access": accesses,
    "dtype": dtypes,
    "point": points,
    "mark": st.none() | marks,
    "function": functions,
    "kind": classes,
    "names": st.lists(texts, max_size=3).map(tuple),
    "sizes": st.lists(st.integers(), max_size=3),
    "weights": st.dictionaries(texts, st.floats(), max_size=3),
    "anything": values,
    # the parameters of the functions
    "x": st.floats(),
    "by": st.floats(),
    "note": texts,
    "first": values,
    "rest": st.lists(values, max_size=2).map(tuple),
    "others": st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=2),
}
"""What may stand in a field, by its name: all that is no config."""


def _some(*names: str) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({}, optional={name: KINDS[name] for name in names})


_leaves: st.SearchStrategy[Config[object]] = st.one_of(
    _some(*fields_of(Leaf.Config)).map(lambda given: Leaf.Config(**given)),  # type: ignore[arg-type]
    _some("x", "by", "note").map(lambda given: config_for(scale)(**{"x": REQUIRED, **given})),
    st.builds(
        lambda first, rest, others: config_for(gather)(first, *rest, **others),
        *(KINDS[name] for name in ("first", "rest", "others")),
    ),
    _some("by", "note").map(lambda given: partial_for(scale, **given)),
    st.just(partial_for(gather)),
)


def _branches(parts: st.SearchStrategy[Config[object]]) -> st.SearchStrategy[Config[object]]:
    places: dict[str, st.SearchStrategy[object]] = {
        "name": texts,
        "child": st.none() | parts,
        "row": st.lists(parts, max_size=3).map(tuple),
        "queue": st.lists(parts, max_size=3),
        "named": st.dictionaries(texts, parts, max_size=3),
        "anything": parts | _containers(parts | things),
    }
    return st.fixed_dictionaries({}, optional=places).map(lambda given: Branch.Config(**given))  # type: ignore[arg-type]


@st.composite
def _opened(draw: st.DrawFn, configs: st.SearchStrategy[Config[object]]) -> Config[object]:
    """A config with a few of its fields opened."""
    config = draw(configs)
    for name in draw(st.lists(st.sampled_from(sorted(fields_of(config))), max_size=2, unique=True)):
        setattr(config, name, REQUIRED)
    return config


parts = st.recursive(_opened(_leaves), lambda below: _opened(_branches(below)), max_leaves=5)
"""Configs of every kind."""

trees = _branches(parts)
"""Configs with others below them."""


def changed(tree: Config[object], data: st.DataObject) -> Config[object]:
    """A copy of ``tree`` in which one field of one config was opened or set anew, maybe to the value that it had."""
    twin = tree.clone()
    path, node = data.draw(st.sampled_from(list(walk(twin))), label="the config to change")
    name = data.draw(st.sampled_from([name for name in fields_of(node) if name in KINDS] or ["anything"]))
    value = data.draw(st.just(REQUIRED) | KINDS[name], label=f"the new {path}.{name}")
    setattr(node, name, value)
    return twin


# Modifiers that any of these trees can take.


def count_up(tree: ConfigT, *, by: int = 1) -> ConfigT:
    for _, node in select(tree, Leaf):
        set_at(node, "count", cast("int", values_of(node).get("count", 0)) + by)
    return tree


def wrap(tree: Config[object], *, name: str) -> Config[object]:
    return Branch.Config(child=tree, name=name, anything=None)


_complete: st.SearchStrategy[Config[object]] = st.one_of(
    st.builds(lambda value: Leaf.Config(width=1, anything=value), values),
    st.builds(lambda name, part: Branch.Config(name=name, child=part), texts, parts),
)
targets: st.SearchStrategy[Target] = st.sampled_from(
    [
        "",
        "**",
        "child",
        "row[*]",
        "**.queue[0]",
        Leaf,
        Leaf.Config,
        Branch,
        describes(scale),
        role("child"),
        role("row"),
    ]
)
settings_of_leaves = st.builds(
    lambda name, anything: when(Leaf, setting(Leaf, name=name, anything=anything)), texts, values | parts
)
_simple: st.SearchStrategy[Modifier] = st.one_of(
    settings_of_leaves,
    st.builds(lambda by: modifier_for(count_up, by=by), st.integers(-3, 3)),
    st.builds(lambda name: modifier_for(wrap, name=name), texts),
    st.builds(lambda name: when(Branch, overriding(f"**.name={name!r}")), texts),
    st.builds(lambda target, new: when(target, replacing(target, new)), targets, _complete),
)


def _composed(modifiers: st.SearchStrategy[Modifier]) -> st.SearchStrategy[Modifier]:
    return st.one_of(
        st.lists(modifiers, max_size=3).map(lambda few: chain(*few)),
        st.builds(lambda target, then, otherwise: when(target, then, otherwise), targets, modifiers, modifiers),
        st.builds(lambda target, each: when(target, for_each(target, each)), targets, modifiers),
    )


modifiers = st.recursive(_simple, _composed, max_leaves=4)
