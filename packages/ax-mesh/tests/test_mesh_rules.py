"""Rules from an accelerator's name to a modifier."""

from __future__ import annotations

import pytest
from ax_config import MissingFieldError, NoMatchError, chain, explain, setting
from ax_config.testing import check_config, check_modifier
from ax_mesh import Mesh, MeshRules

RULES = MeshRules(
    rules={
        "cpu-*": chain(),
        "h100-8": setting(Mesh, axes={"fsdp": -1}),
        "h100-*": setting(Mesh, axes={"data": -1, "fsdp": 8}),
    }
)


def test_the_first_pattern_that_matches_chooses() -> None:
    check_config(RULES)
    for name, axes in (
        ("cpu-4", {"data": 1, "fsdp": -1}),
        ("h100-8", {"fsdp": -1}),
        ("h100-64", {"data": -1, "fsdp": 8}),
    ):
        rules = RULES.clone(accelerator=name)
        check_modifier(rules, Mesh.Config())
        assert rules(Mesh.Config()).axes == RULES.build(accelerator=name)(Mesh.Config()).axes == axes


def test_no_match_is_an_error_with_the_nearest_kinds() -> None:
    with pytest.raises(NoMatchError, match=r"matches the accelerator 'h10-8'; did you mean h100"):
        RULES.build(accelerator="h10-8")(Mesh.Config())
    with pytest.raises(NoMatchError, match="there are rules for: cpu, h100"):
        RULES.build(accelerator="v5e-8")(Mesh.Config())
    with pytest.raises(MissingFieldError, match="accelerator"):
        RULES(Mesh.Config())


def test_what_a_rule_set_says_so() -> None:
    config = RULES.build(accelerator="h100-64")(Mesh.Config())
    (step, *_) = explain(config, "axes").steps
    assert [who.partition("(")[0] for who in step.by] == ["Setting", "MeshRules"]
    assert "accelerator='h100-64'" in step.by[1]
