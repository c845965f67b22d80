"""Tuples, lists and dicts with an item of the wrong type. See `names` for how to read these modules."""

from __future__ import annotations

from .world import Linear, Model, RMSNorm, model


def an_item_of_a_tuple() -> None:
    """FieldTypeError: tags wants tuple[str, …], got ('a', 1) (tuple)"""
    Model.Config(dim=4, tags=("a", 1))  # mypy: arg-type; pyright: reportArgumentType


def a_list_for_a_tuple() -> None:
    """FieldTypeError: tags wants tuple[str, …], got ['a'] (list)"""
    Model.Config(dim=4, tags=["a"])  # mypy: arg-type; pyright: reportArgumentType


def a_tuple_of_another_length() -> None:
    """FieldTypeError: window wants tuple[int, int], got (1, 2, 3) (tuple)"""
    config = model()
    config.window = (1, 2, 3)  # mypy: assignment; pyright: reportAttributeAccessIssue


def an_item_of_a_list() -> None:
    """FieldTypeError: sizes wants list[int], got [1, '2'] (list)"""
    config = model()
    config.sizes = [1, "2"]  # mypy: list-item; pyright: reportAttributeAccessIssue


def a_value_of_a_dict() -> None:
    """FieldTypeError: weights wants dict[str, float], got {'a': 'heavy'} (dict)"""
    config = model()
    config.weights = {"a": "heavy"}  # mypy: dict-item; pyright: reportAttributeAccessIssue


def a_key_of_a_dict() -> None:
    """FieldTypeError: weights wants dict[str, float], got {1: 1.0} (dict)"""
    config = model()
    config.weights = {1: 1.0}  # mypy: dict-item; pyright: reportAttributeAccessIssue


def a_config_in_a_tuple() -> None:
    """FieldTypeError: stages wants tuple[Block.Config, …]"""
    config = model()
    config.stages = (RMSNorm.Config(),)  # mypy: assignment; pyright: reportAttributeAccessIssue


def a_config_in_a_list() -> None:
    """FieldTypeError: norms wants list[Buildable[Norm]]"""
    config = model()
    config.norms = [Linear.Config(in_dim=4)]  # mypy: list-item; pyright: reportAttributeAccessIssue


def a_config_in_a_dict() -> None:
    """FieldTypeError: heads wants dict[str, Buildable[Linear]]"""
    Model.Config(dim=4, heads={"a": RMSNorm.Config()})  # mypy: dict-item; pyright: reportArgumentType
