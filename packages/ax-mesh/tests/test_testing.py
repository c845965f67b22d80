"""The kit accepts what fits and names what doesn't."""

from __future__ import annotations

import numpy as np
import pytest
from ax_mesh.testing import ToySpec, check_has_axes


def test_it_accepts_a_tree_of_specs() -> None:
    check_has_axes({"w": ToySpec((2, 3), ("embed", None)), "s": [ToySpec((), (), np.dtype("int32"))]})


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ({}, "at least one leaf"),
        ({"a": {"w": 3}}, "a/w: wanted shape, dtype and axes, got int"),
        ({"w": ToySpec((2,), ())}, "w: axes .* must name each dim"),
        ({"w": ToySpec((2,), ("",))}, "w: each of axes must be a name or None"),
    ],
)
def test_it_names_what_does_not_fit(specs: object, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_has_axes(specs)
