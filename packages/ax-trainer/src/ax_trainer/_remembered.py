"""Where the optimizer's state lies, and what passes through it: along with the parameters, or split further.

Where a parameter is whole on several devices, each of them may remember, and update, a part of it alone (ZeRO, Rajbhandari
et al. 2019, arXiv:1910.02054, stage 1): a partitioner that ``SupportsOptimizerShardings`` says so. Gradients are then summed
into the parts and never kept whole (stage 2), the optimizer works on parts, and the new parameters are gathered from them.
"""

from __future__ import annotations

from typing import Protocol, TypeVar, cast

import jax

from ._learnt import learnt
from .protocols import Partitioner, SupportsOptimizerShardings

Tree = TypeVar("Tree")


def remembered(partitioner: Partitioner, specs: object) -> object:
    """The sharding of what the optimizer remembers of each parameter."""
    if isinstance(partitioner, SupportsOptimizerShardings):
        return partitioner.optimizer_shardings(specs)
    return partitioner.shardings(specs)


class Place(Protocol):
    """A tree again, laid out otherwise."""

    def __call__(self, tree: Tree, /) -> Tree: ...


def as_remembered(partitioner: Partitioner | None, specs: object) -> Place:
    """Lays gradients or updates, a tree of the learnt parameters, out as the optimizer's state is, where that isn't as the
    parameters are."""
    if partitioner is None:
        return lambda tree: tree
    where_learnt = learnt(specs, partitioner.shardings(specs))
    where_remembered = learnt(specs, remembered(partitioner, specs))

    def place(x: jax.Array, parameter: jax.sharding.Sharding, memory: jax.sharding.Sharding) -> object:
        return x if memory == parameter else jax.lax.with_sharding_constraint(x, memory)

    def place_all(tree: Tree, /) -> Tree:
        return cast("Tree", jax.tree.map(place, tree, where_learnt, where_remembered))

    return place_all
