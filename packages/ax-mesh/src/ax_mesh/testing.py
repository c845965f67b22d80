"""For tests of what gives parameters to a mesh: the kit of ``HasAxes``, and the smallest thing that fits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from .protocols import HasAxes


@dataclass(frozen=True)
class ToySpec:
    """A parameter's description and nothing more."""

    shape: tuple[int, ...]
    axes: Sequence[str | None]
    dtype: np.dtype = np.dtype("float32")  # noqa: RUF009  # dtypes are immutable


def check_has_axes(specs: object) -> None:
    """Every leaf of ``specs`` describes an array well enough to be placed. Raises AssertionError with the leaf's path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(specs, is_leaf=lambda x: isinstance(x, HasAxes))
    assert leaves, "wanted a tree with at least one leaf that has shape, dtype and axes, got an empty one"
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        assert isinstance(leaf, HasAxes), f"{name}: wanted shape, dtype and axes, got {type(leaf).__name__}"
        shape: object = leaf.shape
        axes: Sequence[object] = leaf.axes
        dtype: object = leaf.dtype
        assert isinstance(shape, tuple), f"{name}: shape must be a tuple, got {shape!r}"
        assert all(isinstance(size, int) and size >= 0 for size in shape), f"{name}: shape must hold sizes, got {shape}"
        assert isinstance(dtype, np.dtype), f"{name}: dtype must be a numpy dtype, got {dtype!r}"
        assert len(axes) == len(shape), f"{name}: axes {axes!r} must name each dim of {shape}"
        assert all(axis is None or (isinstance(axis, str) and axis) for axis in axes), (
            f"{name}: each of axes must be a name or None, got {axes!r}"
        )
