"""Configs of children that don't fit, and what they build taken for something else. See `names` for how to read these modules."""

from __future__ import annotations

from ax_config import Config, built, config_for, partial_for, replace

from .world import Block, Linear, Model, Norm, RMSNorm, model, schedule


def a_config_that_builds_something_else_in_the_constructor() -> None:
    """FieldTypeError: norm wants Buildable[Norm], got Linear.Config(in_dim=4) (Linear.Config): it builds a Linear, which has no normalise"""
    Block.Config(norm=Linear.Config(in_dim=4))  # mypy: arg-type; pyright: reportArgumentType


def a_config_that_builds_something_else() -> None:
    """FieldTypeError: stages[1].norm wants Buildable[Norm]"""
    config = model()
    config.stages[1].norm = Linear.Config(in_dim=4)  # mypy: assignment; pyright: reportAttributeAccessIssue


def a_config_that_builds_another_class() -> None:
    """FieldTypeError: head wants Buildable[Linear] | None"""
    config = model()
    config.head = RMSNorm.Config()  # mypy: assignment; pyright: reportAttributeAccessIssue


def a_config_that_builds_neither_of_two_classes() -> None:
    """FieldTypeError: last wants Buildable[Linear | RMSNorm] | None, got Block.Config"""
    config = model()
    config.last = Block.Config()  # mypy: assignment; pyright: reportAttributeAccessIssue


def another_config_class() -> None:
    """FieldTypeError: block.rms wants RMSNorm.Config"""
    config = model()
    config.block.rms = Linear.Config(in_dim=4)  # mypy: assignment; pyright: reportAttributeAccessIssue


def a_module_for_its_config() -> None:
    """FieldTypeError: block.norm wants Buildable[Norm]"""
    config = model()
    config.block.norm = RMSNorm(RMSNorm.Config(dim=4))  # mypy: assignment; pyright: reportAttributeAccessIssue


def _forget(old: Config[object]) -> None:
    old.clone()


def a_replacement_that_is_no_config() -> None:
    """ConfigError: stages[0].norm: what replaces a config is a config, or a function that makes one; _forget gave None"""
    replace(model(), "stages[0].norm", _forget)  # mypy: arg-type; pyright: reportArgumentType, reportCallIssue


def a_config_for_a_function_that_builds_something_else() -> None:
    """FieldTypeError: peak wants float | Buildable[float], got Linear.Config(in_dim=4) (Linear.Config)"""
    config_for(schedule)(built(Linear.Config(in_dim=4)))  # mypy: arg-type; pyright: reportArgumentType


def what_is_built_taken_for_another_class() -> Linear:
    """Nothing: Python looks at no type when it returns"""
    return model().build()  # mypy: return-value; pyright: reportReturnType


def what_is_built_taken_for_a_protocol_it_lacks() -> Norm:
    """Nothing: Python looks at no type when it returns"""
    return Linear.Config(in_dim=4).build(out_dim=3)  # mypy: return-value; pyright: reportReturnType


def a_config_taken_for_what_it_builds() -> Model:
    """Nothing: Python looks at no type when it returns"""
    return model()  # mypy: return-value; pyright: reportReturnType


def the_result_of_a_call_taken_for_another_type() -> str:
    """Nothing: Python looks at no type when it returns"""
    return config_for(schedule)(1.0).build()  # mypy: return-value; pyright: reportReturnType


def a_bound_function_that_is_called_wrongly() -> None:
    """TypeError: unsupported operand type(s) for /: 'str' and 'int'"""
    partial_for(schedule).build()("high")  # mypy: arg-type; pyright: reportArgumentType
