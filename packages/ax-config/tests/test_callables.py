"""Configs of functions that know nothing of configs."""

from __future__ import annotations

import functools
import json
import textwrap

import pytest
from ax_config import (
    ConfigError,
    FieldTypeError,
    MissingFieldError,
    UnknownFieldError,
    built,
    config_for,
    fields_of,
    override,
    partial_for,
)
from things import Candle, linear, paint


def test_the_fields_are_the_parameters() -> None:
    config = config_for(textwrap.shorten)(text="a b c d", width=5)
    assert list(fields_of(config)) == ["text", "width", "kwargs"]
    assert config.build() == "[...]"
    assert config_for(textwrap.shorten)("a b c d", 5, placeholder="…").build() == "a b…"


def test_mistakes_are_named() -> None:
    with pytest.raises(UnknownFieldError, match="'slop'; did you mean slope"):
        config_for(linear)(1.0, slop=2.0)  # type: ignore[call-arg]
    with pytest.raises(FieldTypeError, match="slope wants"):
        config_for(linear)(1.0, slope="2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="import name"):
        config_for(functools.partial(linear, slope=1.0))(1.0)


def test_an_open_parameter_is_filled_at_build_or_missed() -> None:
    config = config_for(linear)()  # type: ignore[call-arg]
    with pytest.raises(MissingFieldError, match="x"):
        config.build()
    assert config.build(x=3.0) == 3.0


def test_nested_configs_are_built_first() -> None:
    inner = config_for(linear)(2.0, slope=3.0)
    assert config_for(linear)(built(inner), slope=0.5).build() == 3.0
    painted = config_for(paint)("red", 1, built(inner), [built(inner)], gloss=True)
    assert painted.build() == ("red", 1, (6.0, [6.0]), True)
    assert override(painted, ["args[0].x=4" if "args" in fields_of(painted) else "layers[0].x=4"]).build()[2][0] == 12.0  # type: ignore[index]


def test_partial_binds_and_is_the_function_itself_when_nothing_is_bound() -> None:
    assert partial_for(linear).build() is linear
    half = partial_for(linear, slope=0.5).build()
    assert half(4.0) == 2.0
    with pytest.raises(UnknownFieldError):
        partial_for(linear, slop=0.5)


def test_classes_are_callables_too() -> None:
    config = config_for(json.JSONDecoder)(strict=False)
    assert config.build().strict is False
    with pytest.raises(MissingFieldError):
        config_for(Candle)().build()  # type: ignore[call-arg]


def test_objects_that_no_config_holds_go_straight_to_the_call() -> None:
    unheld = object()
    assert config_for(paint)().build(colour=unheld) == (unheld, 2, (), False)  # type: ignore[call-arg]
    assert partial_for(paint, coats=1).build(colour=unheld)() == (unheld, 1, (), False)  # type: ignore[call-arg]
