"""Maximal update parametrisation: learning rates found for a narrow model serve a wide one (μP, Yang et al. 2022, arXiv:2203.03466).

As a model grows wider, first values and learning rates are to go with the width such that what each layer computes changes by as much as
before. For optimizers whose updates have a size of their own (Adam, Lion and their kin; table 8 there), with ``r`` how many times wider the
inputs of a matrix are than in the base model:

                                        first values        learning rate
    from width to width (hidden)        as they are         ÷ r
    from width to the outputs           ÷ √r                ÷ r
    looked up by row, such as tokens    × √r                as it is
    vectors                             as they are         as it is

First values are taken to have a variance of 1 ÷ fan-in, with the fan-in that the spec tells; the first and the third line then
make them what the paper asks for. A width is a logical axis that the base has ("embed", "mlp", "heads"); what matrix a parameter
is, is read from its spec, but for those that are looked up, which look like outputs and are known by their paths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar, cast

import ax_config
import jax

from ._groups import path_of
from ._matrices import matrix_dims
from .protocols import Spec

Tree = TypeVar("Tree")


class Factors(NamedTuple):
    """What a parameter's first values and its learning rate are multiplied with."""

    first_values: float
    learning_rate: float


def scaled(tree: Tree, factors: Mapping[str, float]) -> Tree:
    """Arrays by path, those that have a factor multiplied with it."""

    def of_one(path: tuple[object, ...], x: jax.Array) -> jax.Array:
        factor = factors.get(path_of(path), 1.0)
        return x if factor == 1.0 else x * factor

    return cast("Tree", jax.tree_util.tree_map_with_path(of_one, tree))


class WidthScaling:
    """Scales first values and learning rates from a base model's widths to a model's own; for a ``Learner``.

    The base model itself is left as it is. Not told by specs, and so left to the model: that attention divides logits by the
    head's dim, where that grows; a multiplier for outputs whose weights are looked up as well (tied embeddings).
    """

    class Config(ax_config.Config["WidthScaling"]):
        """What the base model is like."""

        base: dict[str, int]
        """The size of each axis that is a width, in the base model: ``{"embed": 256, "mlp": 704, "heads": 4}``."""
        looked_up: tuple[str, ...] = ("*embedding*",)
        """Patterns of the paths of parameters whose rows are looked up; empty for a model without any."""
        stacking_axes: tuple[str, ...] = ("layers", "expert")
        """Along which there are several matrices."""

    def __init__(self, cfg: Config, /) -> None:
        self.cfg = cfg

    def factors(self, specs: object, /) -> Mapping[str, Factors]:
        """By path, for parameters of these specs; those that are as in the base model aren't there.

        Raises:
            ValueError: The base has an axis that no parameter has, or a pattern matches none.
        """
        leaves = jax.tree_util.tree_leaves_with_path(specs)
        there = {axis for _, spec in leaves for axis in spec.axes}
        for axis in self.cfg.base:
            if axis not in there:
                known = ", ".join(sorted(axis for axis in there if axis is not None))
                raise ValueError(f"WidthScaling: no parameter has the base's axis {axis!r}; there are {known}")
        paths = [path_of(path) for path, _ in leaves]
        for pattern in self.cfg.looked_up:
            if not any(fnmatchcase(path, pattern) for path in paths):
                raise ValueError(
                    f"WidthScaling: the pattern {pattern!r} of what is looked up matches no parameter; there are {', '.join(paths[:8])}"
                )
        found = {path_of(path): self._factors(path_of(path), spec) for path, spec in leaves}
        return {path: factors for path, factors in found.items() if factors != Factors(1.0, 1.0)}

    def _factors(self, path: str, spec: Spec) -> Factors:
        cfg = self.cfg
        dims = matrix_dims(spec, stacking_axes=cfg.stacking_axes)
        if dims is None:
            return Factors(1.0, 1.0)
        ratio = math.prod(self._ratio(spec, dim) for dim in dims.inputs)
        if any(fnmatchcase(path, pattern) for pattern in cfg.looked_up):
            return Factors(math.sqrt(ratio), 1.0)
        is_output = not any(spec.axes[dim] in cfg.base for dim in dims.outputs)
        return Factors(1 / math.sqrt(ratio) if is_output else 1.0, 1 / ratio)

    def _ratio(self, spec: Spec, dim: int) -> float:
        axis = spec.axes[dim]
        return 1.0 if axis not in self.cfg.base else spec.shape[dim] / self.cfg.base[axis]
