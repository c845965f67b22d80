"""Which dims of a parameter make it a matrix: those that an output sums over, and those of the outputs.

Optimizers that see matrices (Muon, SOAP) and rules that go by width (``WidthScaling``) read it from a parameter's spec: ``[layers,
embed, heads, head_dim]`` is a stack of matrices from "embed" to heads and their dims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import jax

from ._groups import path_of
from .protocols import Optimizer, Spec, SupportsFanIn


class MatrixDims(NamedTuple):
    """The dims of a parameter, each in one of three parts."""

    stacked: tuple[int, ...]
    """Along which there are several matrices."""
    inputs: tuple[int, ...]
    """That an output sums over."""
    outputs: tuple[int, ...]

    def as_matrices(self, x: jax.Array) -> jax.Array:
        """``[stack, inputs, outputs]``."""
        sizes = [math.prod(x.shape[dim] for dim in dims) for dims in self]
        return x.transpose(self._order()).reshape(sizes)

    def as_it_was(self, matrices: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The parameter of this shape again."""
        order = self._order()
        moved = matrices.reshape([shape[dim] for dim in order])
        return moved.transpose([order.index(dim) for dim in range(len(order))])

    def _order(self) -> tuple[int, ...]:
        return (*self.stacked, *self.inputs, *self.outputs)


def matrix_dims(spec: Spec, *, stacking_axes: tuple[str, ...]) -> MatrixDims | None:
    """How a parameter is a matrix, or a stack of them; None if it is none.

    A spec that ``SupportsFanIn`` says which dims are summed over. Of others it is the first that isn't among the ``stacking_axes``.
    """
    stacked = tuple(dim for dim, axis in enumerate(spec.axes) if axis in stacking_axes)
    others = [dim for dim in range(len(spec.shape)) if dim not in stacked]
    if len(others) < 2:
        return None
    inputs = others[:1]
    if isinstance(spec, SupportsFanIn) and spec.fan_in:
        inputs = [dim for dim in others if dim - len(spec.shape) in spec.fan_in]
    outputs = [dim for dim in others if dim not in inputs]
    return MatrixDims(stacked, tuple(inputs), tuple(outputs)) if inputs and outputs else None


def for_matrices(
    specs: object,
    *,
    rule: Callable[[Mapping[str, MatrixDims]], Optimizer],
    others: Optimizer,
    others_axes: tuple[str, ...],
    stacking_axes: tuple[str, ...],
) -> Optimizer:
    """``rule``, told the matrices by path, for those; ``others`` for all else, and for what has one of the ``others_axes``."""
    import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

    found: dict[str, MatrixDims] = {}
    for path, spec in jax.tree_util.tree_leaves_with_path(specs):
        dims = matrix_dims(spec, stacking_axes=stacking_axes)
        if dims is not None and not set(spec.axes) & set(others_axes):
            found[path_of(path)] = dims
    labels = jax.tree_util.tree_map_with_path(lambda path, _: "matrices" if path_of(path) in found else "others", specs)
    return cast("Optimizer", optax.partition({"matrices": rule(found), "others": others}, labels))
