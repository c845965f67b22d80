"""Axis sizes: inferred where open, and told with the legal ones where wrong."""

from __future__ import annotations

import math

import pytest
from ax_mesh._resolve import AxisSizeError, Sizes, factorings, resolve, resolve_axes
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_the_open_axis_is_inferred(sizes: list[int], data: st.DataObject) -> None:
    axes = {f"axis{index}": size for index, size in enumerate(sizes)}
    open_axis = data.draw(st.sampled_from([None, *axes]))
    given_axes = {name: -1 if name == open_axis else size for name, size in axes.items()}
    assert resolve_axes(given_axes, math.prod(sizes)) == axes


@given(st.integers(1, 64), st.integers(1, 3))
def test_factorings_are_all_and_each_once(number: int, num_factors: int) -> None:
    found = list(factorings(number, num_factors))
    divisors = [factor for factor in range(1, number + 1) if number % factor == 0]
    assert len(found) == len(set(found))
    assert all(math.prod(sizes) == number for sizes in found)
    assert {sizes[0] for sizes in found} == set(divisors if num_factors > 1 else [number])


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({}, "at least one axis"),
        ({"data": -1, "fsdp": -1}, r"at most one axis may be -1 \(inferred\); got data=-1, fsdp=-1"),
        ({"data": 0}, "positive, or -1 for the one to infer; got data=0"),
        ({"data": 3, "fsdp": -1}, r"data=3, fsdp=-1 .* 8 devices: .*product 3, which doesn't divide 8\. Legal are: data=1, fsdp=8; "),
        ({"data": 2, "fsdp": 2}, r"data=2, fsdp=2 doesn't fit 8 devices: their product is 4\. Legal are: data=2, fsdp=4; data=4, fsdp=2; data=1"),
    ],
)  # fmt: skip
def test_errors_name_sizes_axes_devices_and_what_is_legal(axes: dict[str, int], message: str) -> None:
    with pytest.raises(AxisSizeError, match=message):
        resolve_axes(axes, 8)


def test_axes_between_groups_multiply_those_within() -> None:
    assert resolve({"fsdp": -1, "tensor": 8}, {"data": 4}, 256, None) == Sizes(
        {"data": 1, "fsdp": 8, "tensor": 8}, {"data": 4, "fsdp": 1, "tensor": 1}
    )
    sizes = resolve({"data": 2, "fsdp": 4}, {"data": -1}, 32, None)
    assert sizes.total() == {"data": 8, "fsdp": 4}
    assert resolve({"fsdp": -1}, {"data": -1}, 64, 4).total() == {"data": 4, "fsdp": 16}


@pytest.mark.parametrize(
    ("axes", "between", "num_groups", "message"),
    [
        ({"fsdp": -1}, {}, 4, r"64 devices are in 4 slices.*between=\{'fsdp': -1\}"),
        ({"fsdp": -1}, {"data": -1}, None, r"how many groups the 64 devices form isn't known.*axes \(fsdp=-1\)"),
        ({"fsdp": -1}, {"data": 2}, 4, r"64 devices in 4 groups .*between data=2 for 4 groups .*Legal are: data=4"),
        ({"fsdp": 3, "tensor": -1}, {"data": 4}, 4, r"axes fsdp=3, tensor=-1 for 16 devices in each group: .*product 3"),
        ({"fsdp": 8}, {"data": 3}, 4, r"axes fsdp=8 for 16 .*Legal are: fsdp=16; between data=3 for 4 .*Legal are: data=4"),
        ({"fsdp": 16}, {"data": 5}, None, r"64 devices can't be 5 equal groups"),
        ({"fsdp": 16}, {"data": 0}, 4, r"positive.*got data=0"),
    ],
)  # fmt: skip
def test_errors_of_hybrid_meshes_name_groups_and_what_is_legal_in_both(
    axes: dict[str, int], between: dict[str, int], num_groups: int | None, message: str
) -> None:
    with pytest.raises(AxisSizeError, match=message):
        resolve(axes, between, 64, num_groups)
