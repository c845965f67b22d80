"""Rules: ordered, each mesh axis once an array, and nothing happens silently."""

from __future__ import annotations

import math

import pytest
from ax_mesh import DEFAULT_RULES, Rule, ShardingRuleError
from ax_mesh._rules import Indivisible, check_rules, choose
from hypothesis import given
from hypothesis import strategies as st

_LOGICAL = ("batch", "embed", "mlp", "heads")
_MESH_AXES = ("data", "fsdp", "tensor")

_targets = st.one_of(
    st.none(),
    st.sampled_from(_MESH_AXES),
    st.lists(st.sampled_from(_MESH_AXES), min_size=1, max_size=3, unique=True).map(tuple),
)
_rules = st.lists(st.tuples(st.sampled_from(_LOGICAL), _targets), max_size=8).map(
    lambda rules: (*rules, *((name, None) for name in _LOGICAL))
)
_dims = st.lists(st.tuples(st.sampled_from([*_LOGICAL, None]), st.integers(1, 24)), max_size=4)
_mesh = st.fixed_dictionaries({axis: st.integers(1, 4) for axis in _MESH_AXES})


@given(_rules, _dims, _mesh)
def test_each_mesh_axis_serves_one_dim_and_sizes_divide(
    rules: tuple[Rule, ...], dims: list[tuple[str | None, int]], mesh: dict[str, int]
) -> None:
    axes, shape = [name for name, _ in dims], [size for _, size in dims]
    choices = choose(axes, shape, rules=rules, mesh=mesh, indivisible="replicate", what="x")
    used = [axis for choice in choices for axis in choice.mesh_axes]
    assert len(used) == len(set(used))
    assert all(mesh[axis] > 1 for axis in used)
    for (name, size), choice in zip(dims, choices, strict=True):
        assert size % math.prod(mesh[axis] for axis in choice.mesh_axes) == 0
        legal = [() if t is None else (t,) if isinstance(t, str) else t for logical, t in rules if logical == name]
        kept = [tuple(axis for axis in target if mesh[axis] > 1) for target in legal]
        assert choice.mesh_axes in kept or choice.mesh_axes == ()
        assert choice.mesh_axes or choice.reason


@given(
    _rules,
    st.lists(st.tuples(st.sampled_from(_LOGICAL), st.integers(1, 24)), unique_by=lambda dim: dim[0]),
    _mesh,
    st.data(),
)
def test_the_order_of_dims_is_of_no_account(
    rules: tuple[Rule, ...], dims: list[tuple[str, int]], mesh: dict[str, int], data: st.DataObject
) -> None:
    def chosen(dims: list[tuple[str, int]]) -> dict[str, tuple[str, ...]]:
        names, sizes = [name for name, _ in dims], [size for _, size in dims]
        choices = choose(names, sizes, rules=rules, mesh=mesh, indivisible="replicate", what="x")
        return {name: choice.mesh_axes for name, choice in zip(names, choices, strict=True)}

    assert chosen(data.draw(st.permutations(dims))) == chosen(dims)


def _choose(
    axes: tuple[str | None, ...],
    shape: tuple[int, ...],
    rules: tuple[Rule, ...] = DEFAULT_RULES,
    indivisible: Indivisible = "error",
) -> list[tuple[str, ...]]:
    mesh = {"data": 2, "fsdp": 4, "tensor": 2}
    choices = choose(axes, shape, rules=rules, mesh=mesh, indivisible=indivisible, what="layer/w")
    return [choice.mesh_axes for choice in choices]


def test_the_first_rule_that_fits_wins() -> None:
    rules: tuple[Rule, ...] = (("mlp", ("data", "fsdp")), ("mlp", "tensor"), ("mlp", None), ("embed", "fsdp"))
    assert _choose(("mlp",), (16,), rules) == [("data", "fsdp")]
    assert _choose(("mlp",), (6,), rules) == [("tensor",)]
    assert _choose(("mlp",), (5,), rules) == [()]
    assert _choose(("embed", "mlp"), (8, 16), rules) == [(), ("data", "fsdp")]


def test_of_two_names_the_one_whose_rule_stands_first_gets_the_mesh_axis() -> None:
    heads_first: tuple[Rule, ...] = (("heads", "tensor"), ("seq", "tensor"))
    assert _choose(("seq", "heads"), (8, 4), heads_first) == [(), ("tensor",)]
    assert _choose(("seq", "heads"), (8, 4), heads_first[::-1]) == [("tensor",), ()]
    assert _choose(("seq", "heads"), (8, 3), heads_first, "replicate") == [("tensor",), ()]
    assert _choose(("heads", "heads"), (8, 4), heads_first) == [("tensor",), ()]  # within a rule, the first dim


def test_a_choice_tells_when_only_the_mesh_lacks_an_axis() -> None:
    mesh = {"fsdp": 4, "tensor": 1}
    axes, shape = ("layers", "heads", "embed", "norm", "mlp"), (2, 8, 8, 8, 3)
    rules: tuple[Rule, ...] = (*DEFAULT_RULES, ("mlp", "fsdp"))
    choices = choose(axes, shape, rules=rules, mesh=mesh, indivisible="replicate", what="x")
    assert [choice.absent for choice in choices] == [("pipeline",), ("tensor",), (), (), ()]


def test_a_rule_is_never_applied_in_part() -> None:
    rules: tuple[Rule, ...] = (("batch", ("data", "fsdp")), ("batch", "data"))
    assert _choose(("batch",), (6,), rules) == [("data",)]
    with pytest.raises(
        ShardingRuleError, match=r"3 can't be split 8 ways over data\+fsdp; 3 can't be split 2 ways over data\. "
    ):
        _choose(("batch",), (3,), rules)


def test_the_default_rules() -> None:
    assert _choose(("batch", "seq", "embed"), (8, 5, 12)) == [("data", "fsdp"), (), ()]
    assert _choose(("batch", "seq", None), (8, 6, 12)) == [("data", "fsdp"), ("tensor",), ()]
    assert _choose(("batch", "seq", "heads", None), (8, 6, 4, 5)) == [("data", "fsdp"), (), ("tensor",), ()]
    assert _choose(("layers", "embed", "heads", None), (3, 12, 4, 5)) == [(), ("fsdp",), ("tensor",), ()]
    assert _choose(("vocab", "embed"), (10, 12)) == [("tensor",), ("fsdp",)]
    assert _choose(("expert", "embed", "mlp"), (3, 12, 4)) == [(), ("fsdp",), ("tensor",)]  # this mesh has no such axis


@pytest.mark.parametrize(
    ("mesh", "axes", "want"),
    [
        ({"fsdp": 4, "expert": 2}, ("layers", "expert", "embed", "mlp"), [(), ("expert",), ("fsdp",), ()]),
        ({"fsdp": 4, "expert": 2}, ("batch", "seq", None), [("fsdp", "expert"), (), ()]),
        ({"fsdp": 4, "expert": 2}, ("batch", "expert", None), [("fsdp",), ("expert",), ()]),
        ({"sequence": 2, "tensor": 2}, ("batch", "seq", None), [(), ("sequence", "tensor"), ()]),
        ({"sequence": 2, "tensor": 2}, ("batch", "seq", "heads"), [(), ("sequence",), ("tensor",)]),
        ({"pipeline": 2, "fsdp": 4}, ("layers", "embed", "mlp"), [("pipeline",), ("fsdp",), ()]),
    ],
)
def test_the_default_rules_know_every_axis(
    mesh: dict[str, int], axes: tuple[str, ...], want: list[tuple[str, ...]]
) -> None:
    choices = choose(axes, (8,) * len(axes), rules=DEFAULT_RULES, mesh=mesh, indivisible="error", what="x")
    assert [choice.mesh_axes for choice in choices] == want


def test_a_dim_that_divides_nowhere_is_an_error_or_replicated() -> None:
    with pytest.raises(ShardingRuleError, match=r"layer/w: dim 1 \('mlp'\).* 9 can't be split 2 ways over tensor"):
        _choose(("embed", "mlp"), (8, 9))
    assert _choose(("embed", "mlp"), (8, 9), indivisible="replicate") == [("fsdp",), ()]


def test_unknown_names_come_with_the_nearest() -> None:
    with pytest.raises(ShardingRuleError, match=r"layer/w: dim 0 is called 'embd'.*did you mean 'embed'"):
        _choose(("embd",), (8,))
    with pytest.raises(ShardingRuleError, match=r"the rule for 'batch' names the mesh axis 'dta'.*did you mean 'data'"):
        check_rules((("batch", "dta"),), ("fsdp",))
    check_rules((("batch", ("mine", "tensor")),), ("mine",))


def test_axes_and_shape_must_agree() -> None:
    with pytest.raises(ShardingRuleError, match=r"layer/w: its shape \(2, 3\) has 2 dims"):
        _choose(("embed",), (2, 3))
