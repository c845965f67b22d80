"""Modifiers that are made wrongly, or of trees that they don't fit. See `names` for how to read these modules."""

from __future__ import annotations

from ax_config import (
    Config,
    Modifier,
    chain,
    explain,
    for_each,
    map_values,
    modifier_for,
    overriding,
    role,
    setting,
    when,
)

from .world import Linear, Model, RMSNorm, model


def _widen(config: Model.Config, *, times: int) -> Model.Config:
    config.dim *= times
    return config


def _narrow(config: Linear.Config) -> Linear.Config:
    config.in_dim -= 1
    return config


def _forget(config: Model.Config) -> None:
    config.dim = 1


class Scale(Modifier):
    by: int

    def apply(self, tree: Config[object]) -> Config[object]:
        return tree


def an_argument_that_a_function_does_not_take() -> None:
    """UnknownFieldError: modify _widen) has no field 'tims'; did you mean times?"""
    modifier_for(_widen, times=1, tims=2)  # mypy: call-arg; pyright: reportCallIssue


def an_argument_of_the_wrong_type() -> None:
    """FieldTypeError: times wants int"""
    modifier_for(_widen, times="2")  # mypy: arg-type; pyright: reportArgumentType


def an_argument_that_a_function_needs() -> None:
    """MissingFieldError: modify _widen: required and not set: times"""
    modifier_for(_widen)(model())  # mypy: call-arg; pyright: reportCallIssue


def a_field_of_the_wrong_type() -> None:
    """FieldTypeError: by wants int, got '2' (str)"""
    Scale(by="2")  # mypy: arg-type; pyright: reportArgumentType


def a_function_that_gives_no_tree() -> None:
    """ConfigError: _forget gave None; a modifier gives back the tree (is there a return?)"""
    modifier_for(_forget)(model())  # mypy: misc; pyright: reportArgumentType


def a_function_that_gives_no_tree_in_a_chain() -> None:
    """ConfigError: _forget gave None; a modifier gives back the tree (is there a return?)"""
    chain(_forget)(model())  # mypy: misc; pyright: reportArgumentType


def a_modifier_of_other_trees() -> None:
    """UnknownFieldError: config (Linear.Config) has no field 'dim'; did you mean in_dim or out_dim?"""
    _widen(Linear.Config(in_dim=4), times=2)  # mypy: arg-type; pyright: reportArgumentType


def a_chain_of_modifiers_of_different_trees() -> None:
    """UnknownFieldError: config (Model.Config) has no field 'in_dim'; did you mean dim?"""
    chain(modifier_for(_widen, times=2), _narrow)(
        model()
    )  # mypy: -; pyright: -; a modifier doesn't say in its type of what trees


def a_chain_of_functions_of_different_trees() -> None:
    """UnknownFieldError: config (Model.Config) has no field 'in_dim'; did you mean dim?"""

    def twice(config: Model.Config) -> Model.Config:
        return _widen(config, times=2)

    chain(twice, _narrow)(model())  # mypy: misc; pyright: reportArgumentType


def a_condition_that_is_no_target() -> None:
    """FieldTypeError: target wants type[object] | str | Callable"""
    when(3, chain())  # mypy: arg-type; pyright: reportArgumentType


def a_role_that_is_no_name() -> None:
    """FieldTypeError: name wants str, got <class 'mistakes.world.RMSNorm'> (type)"""
    for_each(role(RMSNorm), chain())  # mypy: arg-type; pyright: reportArgumentType


def a_field_that_the_target_lacks() -> None:
    """UnknownFieldError: block.rms (RMSNorm.Config) has no field 'esp'; did you mean eps?"""
    setting("block.rms", esp=1.0)(model())  # mypy: -; pyright: -; which configs are meant is known when a tree is there


def a_value_that_the_target_does_not_take() -> None:
    """FieldTypeError: block.rms.eps wants float, got 'small' (str)"""
    setting("block.rms", eps="small")(
        model()
    )  # mypy: -; pyright: -; which configs are meant is known when a tree is there


def a_path_that_leads_nowhere() -> None:
    """NoMatchError: there is no 'block.rms.esp' in the config; did you mean block.rms.eps"""
    overriding("block.rms.esp=1")(model())  # mypy: -; pyright: -; a path is a string


def an_assignment_that_is_no_text() -> None:
    """FieldTypeError: assignments wants tuple[str, …], got (3,) (tuple)"""
    overriding(3)  # mypy: arg-type; pyright: reportArgumentType


def a_function_of_values_that_takes_no_path() -> None:
    """TypeError: takes 1 positional argument but 2 were given"""

    def doubled(value: object) -> object:
        return [value, value]

    map_values(model(), doubled)  # mypy: arg-type; pyright: reportArgumentType


def a_path_that_is_no_text() -> None:
    """TypeError: expected string"""
    explain(model(), 3)  # mypy: arg-type; pyright: reportArgumentType
