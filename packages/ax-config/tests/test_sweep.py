"""Sweeps: lazy, named, and the same everywhere."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable

import pytest
from ax_config import REQUIRED, ConfigError, NoMatchError, config_for, dumps, loads, overriding, setting
from ax_config.sweeps import (
    Sweep,
    axis,
    choice,
    concat,
    integers,
    log_uniform,
    product,
    sample,
    uniform,
    variants,
    zipped,
)
from hypothesis import given
from hypothesis import strategies as st
from things import Bulb, Candle, House, Room, house, linear

HEIGHTS = axis("height", [2.0, 3.0])
WATTS = axis("**.watts", range(1, 4))


def names(sweep: Sweep) -> list[str]:
    return [variant.name for variant in sweep]


def test_a_product_varies_the_last_fastest() -> None:
    sweep = product(HEIGHTS, WATTS)
    assert len(sweep) == 6
    assert names(sweep)[:4] == ["height=2.0,watts=1", "height=2.0,watts=2", "height=2.0,watts=3", "height=3.0,watts=1"]
    name, config = sweep.on(house())[4]
    assert name == "height=3.0,watts=2"
    assert config.height == 3.0
    assert {lamp.watts for lamp in (config.rooms[1].lamp, config.lamps["porch"]) if isinstance(lamp, Bulb.Config)} == {
        2
    }


def test_a_zip_goes_along_all_and_wants_one_length() -> None:
    assert names(zipped(HEIGHTS, axis("rooms[0].name", "ab"))) == ["height=2.0,name=a", "height=3.0,name=b"]
    with pytest.raises(ConfigError, match=r"2 of height and 3 of \*\*.watts"):
        zipped(HEIGHTS, WATTS)


def test_concat_numbers_parts_only_where_names_could_meet() -> None:
    assert names(concat(HEIGHTS, axis("rooms[0].name", "a"))) == ["height=2.0", "height=3.0", "name=a"]
    assert names(concat(HEIGHTS, HEIGHTS)) == [
        *["part=0,height=2.0", "part=0,height=3.0"],
        *["part=1,height=2.0", "part=1,height=3.0"],
    ]


def test_variants_are_modifiers_under_their_names() -> None:
    sweep = product(variants({"high": setting(House, height=9.0), "as is": overriding()}), WATTS)
    assert names(sweep)[::3] == ["high,watts=1", "as-is,watts=1"]
    assert [config.height for _, config in sweep.on(house())[::3]] == [9.0, 2.5]
    assert loads(dumps(sweep[0].modifier)) == sweep[0].modifier


def test_paths_are_told_by_as_much_of_their_end_as_tells_them_apart() -> None:
    sweep = product(axis("a.left.dim", [1]), axis("a.right.dim", [2]), axis("b.right.dim", [3]), axis("x.rate", [4]))
    assert names(sweep) == ["left.dim=1,a.right.dim=2,b.right.dim=3,rate=4"]


def test_values_are_told_in_few_characters() -> None:
    values = [
        1e-05,
        -1,
        "a/b c",
        (1, 2),
        None,
        Candle.Config(),
        Bulb.Config(),
        Bulb.Config(watts=1),
        config_for(linear)(REQUIRED),
    ]
    values += ["a/b c", linear, "", "x" * 99]
    assert [variant.name.partition("=")[2] for variant in axis("x", values)] == [
        *["1e-05", "-1", "a-b-c", "1-2", "None", "Candle", "Bulb", "Bulb-2", "linear", "a-b-c-2", "linear-2", "empty"],
        "x" * 40,
    ]
    assert [c.rooms[1].lamp for _, c in axis("rooms[1].lamp", [Candle.Config(power=2.0)]).on(house())] == [
        Candle.Config(power=2.0)
    ]


def test_a_billion_variants_are_at_hand_at_once() -> None:
    begin = time.perf_counter()
    sweep = product(*(axis(f"a{i}", range(1000)) for i in range(3)), concat(sample(10**9, 0, {"b": uniform(0, 1)})))
    assert len(sweep) == 10**18
    middle = sweep[10**17 : 10**18 : 10**17]
    assert (len(middle), middle[-1].name) == (9, sweep[9 * 10**17].name)
    assert sweep[-1].name.startswith("a0=999,a1=999,a2=999,sample=999999999,b=")
    assert sweep[0].name.startswith("a0=0,a1=0,a2=0,sample=0,b=")
    assert time.perf_counter() - begin < 1
    with pytest.raises(IndexError):
        sweep[10**18]


def test_samples_are_the_same_everywhere_and_in_any_order() -> None:
    distributions = {"a.rate": log_uniform(1e-4, 1e-2), "n": integers(1, 6), "c": choice("x", "y"), "u": uniform(-1, 1)}
    sweep = sample(50, 7, distributions)
    assert sweep[3].name == "sample=3,rate=0.0002832,n=3,c=x,u=0.5312"
    assert sweep[3] == sample(4, 7, distributions)[3]
    assert list(reversed(list(sweep))) == list(reversed(sweep))
    assert sample(50, 8, distributions)[3] != sweep[3]


@pytest.mark.parametrize(
    ("draw", "inside", "middle"),
    [
        (uniform(2, 4), lambda x: 2 <= x <= 4, 3),
        (log_uniform(1e-4, 1e-2), lambda x: 1e-4 <= x <= 1e-2, 1e-3),
        (integers(1, 5), lambda x: x in (1, 2, 3, 4, 5), 3),
        (choice(1, 2, 3), lambda x: x in (1, 2, 3), 2),
    ],
)
def test_distributions(draw: Callable[[float], object], inside: Callable[[object], bool], middle: float) -> None:
    sweep = sample(1001, 0, {"x": draw})
    values = [variant.modifier.values["x"] for variant in sweep]  # type: ignore[attr-defined]
    assert all(map(inside, values))
    assert math.isclose(statistics.median(values), middle, rel_tol=0.15)
    assert inside(draw(0.0))
    assert inside(draw(1 - 2**-53))
    assert len(set(values)) == len(set(map(draw, (i / 1000 for i in range(1000))))) or len(set(values)) == 1001


@pytest.mark.parametrize("make", [lambda: uniform(2, 1), lambda: log_uniform(0, 1), lambda: choice(), lambda: concat()])
def test_mistakes(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()


def test_a_path_that_leads_nowhere_is_an_error_when_it_is_applied() -> None:
    with pytest.raises(NoMatchError, match="did you mean height"):
        axis("hight", [1.0]).on(house())[0]


sweeps = st.recursive(
    st.builds(
        axis,
        st.sampled_from(["height", "rooms[0].name", "rooms[1].name", "**.watts", "part", "sample"]),
        st.lists(st.integers() | st.text() | st.floats() | st.just(Room.Config(name="x")), max_size=3),
    )
    | st.builds(lambda n, seed: sample(n, seed, {"a.b": uniform(0, 1)}), st.integers(0, 3), st.integers())
    | st.builds(lambda keys: variants({k: overriding() for k in keys}), st.lists(st.text(), max_size=3)),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda s: product(*s))
        | st.lists(inner, min_size=1, max_size=3).map(lambda s: concat(*s))
    ),
    max_leaves=5,
)


@given(sweeps)
def test_names_are_unique_and_names_of_files(sweep: Sweep) -> None:
    found = names(sweep)
    assert len(found) == len(sweep)
    assert len(set(found)) == len(found)
    assert all(re.fullmatch(r"[A-Za-z0-9._+@=,-]+", name) for name in found)
    assert [sweep[i].name for i in range(len(sweep))] == found
