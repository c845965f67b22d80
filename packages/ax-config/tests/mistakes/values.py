"""Values of the wrong type for their field. See `names` for how to read these modules."""

from __future__ import annotations

import ax_config
from ax_config import config_for, field, partial_for

from .world import Linear, Model, Precision, RMSNorm, Shape, model, schedule


def a_string_for_a_number_in_the_constructor() -> None:
    """FieldTypeError: in_dim wants int, got '4' (str)"""
    Linear.Config(in_dim="4")  # mypy: arg-type; pyright: reportArgumentType


def a_string_for_a_number() -> None:
    """FieldTypeError: block.rms.eps wants float, got 'small' (str)"""
    config = model()
    config.block.rms.eps = "small"  # mypy: assignment; pyright: reportAttributeAccessIssue


def a_fraction_for_a_whole_number() -> None:
    """FieldTypeError: dim wants int, got 4.0 (float)"""
    config = model()
    config.dim = 4.0  # mypy: assignment; pyright: reportAttributeAccessIssue


def a_truth_value_for_a_number() -> None:
    """FieldTypeError: stages[0].dropout wants float, got True (bool)"""
    config = model()
    config.stages[0].dropout = True  # mypy: -; pyright: -; to Python's types a bool is a number


def none_where_it_is_not_allowed() -> None:
    """FieldTypeError: stages[1].dropout wants float, got None (NoneType)"""
    config = model()
    config.stages[1].dropout = None  # mypy: assignment; pyright: reportAttributeAccessIssue


def a_string_that_is_none_of_the_literals() -> None:
    """FieldTypeError: task wants Literal['train', 'eval'], got 'trian' (str)"""
    Model.Config(dim=4, task="trian")  # mypy: arg-type; pyright: reportArgumentType


def the_value_of_an_enum_for_its_member() -> None:
    """FieldTypeError: precision wants Precision, got 'bf16' (str)"""
    config = model()
    config.precision = "bf16"  # mypy: assignment; pyright: reportAttributeAccessIssue


def a_member_that_an_enum_does_not_have() -> None:
    """AttributeError: LWO"""
    config = model()
    config.precision = Precision.LWO  # mypy: attr-defined; pyright: reportAttributeAccessIssue, reportUnknownMemberType


def a_tuple_for_a_dataclass() -> None:
    """FieldTypeError: shape wants Shape, got (8, 128) (tuple)"""
    config = model()
    config.shape = (8, 128)  # mypy: assignment; pyright: reportAttributeAccessIssue


def a_string_in_a_dataclass() -> None:
    """Nothing: a dataclass that is not a config checks nothing when it is made"""
    model().shape = Shape("8")  # mypy: arg-type; pyright: reportArgumentType


def a_class_for_its_config() -> None:
    """FieldTypeError: block.rms wants RMSNorm.Config"""
    config = model()
    config.block.rms = RMSNorm.Config  # mypy: assignment; pyright: reportAttributeAccessIssue


def a_string_for_a_number_of_a_function() -> None:
    """FieldTypeError: peak wants float"""
    config_for(schedule)("high")  # mypy: arg-type; pyright: reportArgumentType


def a_number_for_a_string_of_a_function() -> None:
    """FieldTypeError: name wants str"""
    config_for(schedule)(1.0, name=3)  # mypy: arg-type; pyright: reportArgumentType


def a_number_for_a_string_of_a_bound_function() -> None:
    """FieldTypeError: name wants str"""
    partial_for(schedule, name=3)  # mypy: -; pyright: -; no type says "some of the parameters of this function"


def a_default_of_the_wrong_type() -> None:
    """FieldTypeError: width wants int, got 'wide' (str)"""

    class Config(ax_config.Config[object]):
        width: int = "wide"  # mypy: assignment; pyright: reportAssignmentType

    Config()


def a_described_default_of_the_wrong_type() -> None:
    """FieldTypeError: width wants int, got 'wide' (str)"""

    class Config(ax_config.Config[object]):
        width: int = field(default="wide", help="columns")  # mypy: assignment; pyright: reportAssignmentType

    Config()


def a_default_made_of_the_wrong_type() -> None:
    """FieldTypeError: head wants Linear.Config, got RMSNorm.Config(eps=1e-06) (RMSNorm.Config)"""

    class Config(ax_config.Config[object]):
        head: Linear.Config = field(default_factory=RMSNorm.Config)  # mypy: assignment; pyright: reportAssignmentType

    Config()


def a_default_that_all_would_share() -> None:
    """TypeError: Config.sizes: a default of type list would be shared; write field(default_factory=…)"""

    class Config(ax_config.Config[object]):
        sizes: list[int] = []  # noqa: RUF012  # mypy: -; pyright: -; they say so of dataclasses alone

    Config()


def a_default_config_that_all_would_share() -> None:
    """TypeError: Config.norm: a default of type RMSNorm.Config would be shared; write field(default_factory=…)"""

    class Config(ax_config.Config[object]):
        norm: RMSNorm.Config = RMSNorm.Config()  # mypy: -; pyright: -; they say so of dataclasses alone

    Config()


def a_field_in_the_place_of_a_method() -> None:
    """TypeError: Config: a field can't be called 'build', a config has a method of that name"""

    class Config(ax_config.Config[object]):
        build: int = 3  # mypy: assignment; pyright: reportIncompatibleMethodOverride

    Config()
