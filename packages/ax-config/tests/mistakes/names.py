"""Names that are no field, fields without a value, values without a name.

Each function of these modules makes one mistake. The comment on the wrong line names the codes that mypy and pyright have
to report there; the docstring is the error that running it has to raise, with the place in the tree where there is one.
`Nothing` and `-` stand for a mistake that cannot be seen that way, with the reason.
"""

from __future__ import annotations

from ax_config import config_for, partial_for

from .world import Block, Linear, RMSNorm, model, schedule


def a_misspelt_argument() -> None:
    """UnknownFieldError: Linear.Config) has no field 'out_dmi'; did you mean out_dim?"""
    Linear.Config(in_dim=4, out_dmi=3)  # mypy: call-arg; pyright: reportCallIssue


def a_misspelt_attribute_that_is_set() -> None:
    """UnknownFieldError: block.rms (RMSNorm.Config) has no field 'esp'; did you mean eps?"""
    config = model()
    config.block.rms.esp = 1e-3  # mypy: attr-defined; pyright: reportAttributeAccessIssue


def a_misspelt_attribute_that_is_read() -> None:
    """UnknownFieldError: stages[1].rms (RMSNorm.Config) has no field 'esp'; did you mean eps?"""
    config = model()
    assert config.stages[1].rms.esp  # mypy: attr-defined; pyright: reportAttributeAccessIssue, reportUnknownMemberType


def a_misspelt_attribute_that_is_deleted() -> None:
    """UnknownFieldError: block (Block.Config) has no field 'droput'; did you mean dropout?"""
    config = model()
    del config.block.droput  # mypy: attr-defined; pyright: reportAttributeAccessIssue


def a_name_that_the_config_behind_a_protocol_may_not_have() -> None:
    """Nothing: the config that is there has the field; but another that fits may not, so only its own class may be asked."""
    config = model()
    config.block.norm.eps = 1e-3  # mypy: attr-defined; pyright: reportAttributeAccessIssue


def a_missing_argument() -> None:
    """MissingFieldError: Linear.Config: no value for in_dim"""
    Linear.Config(out_dim=3)  # mypy: call-arg; pyright: reportCallIssue


def a_positional_argument() -> None:
    """TypeError: positional argument"""
    Linear.Config(4)  # mypy: call-arg; pyright: reportCallIssue


def a_field_that_is_still_open_when_it_is_built() -> None:
    """MissingFieldError: out_dim"""
    Linear.Config(in_dim=4).build()  # mypy: -; pyright: -; the parent may give it: build(out_dim=3)


def a_field_that_is_still_open_when_it_is_read() -> None:
    """MissingFieldError: block.rms.dim is not set"""
    print(model().block.rms.dim)  # mypy: -; pyright: -; whether it is set is not in its type


def an_argument_of_clone_that_is_no_field() -> None:
    """UnknownFieldError: has no field 'droput'; did you mean dropout?"""
    Block.Config().clone(droput=0.1)  # mypy: -; pyright: -; no type says "the fields of this class, all optional"


def an_argument_that_a_function_does_not_take() -> None:
    """UnknownFieldError: call schedule has no parameter 'stpes'; did you mean steps?"""
    config_for(schedule)(1.0, stpes=3)  # mypy: call-arg; pyright: reportCallIssue


def an_argument_that_a_function_does_not_take_by_position() -> None:
    """TypeError: too many positional arguments"""
    config_for(schedule)(1.0, 3)  # mypy: call-arg; pyright: reportCallIssue


def an_argument_that_a_function_needs() -> None:
    """MissingFieldError: peak"""
    config_for(schedule)().build()  # mypy: call-arg; pyright: reportCallIssue, reportUnknownMemberType


def an_argument_that_a_bound_function_does_not_take() -> None:
    """UnknownFieldError: has no field 'stpes'; did you mean steps?"""
    partial_for(schedule, stpes=3)  # mypy: -; pyright: -; no type says "some of the parameters of this function"


def a_misspelt_method() -> None:
    """AttributeError: 'RMSNorm' object has no attribute 'normalize'"""
    norm = RMSNorm.Config(dim=4).build()
    norm.normalize(1.0)  # mypy: attr-defined; pyright: reportAttributeAccessIssue, reportUnknownMemberType
