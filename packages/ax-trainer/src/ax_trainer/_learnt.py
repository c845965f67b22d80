"""Which parameters are learnt. The others are constants of the step: no gradient, no optimizer's state, whatever their type.

Their specs say so (``SupportsTrainable``), or the optimizer, of those that it is told to leave alone (``SupportsFreezing``). A tree
of the learnt ones is the whole tree with None in place of the others, which JAX and optax take for empty subtrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, cast

import jax
import numpy as np

from .protocols import Model, Optimizer, Params, Spec, SupportsFreezing, SupportsTrainable

Tree = TypeVar("Tree")


@dataclass(frozen=True)
class _Frozen:
    """The spec of a parameter that the optimizer leaves alone."""

    shape: tuple[int, ...]
    dtype: np.dtype
    axes: tuple[str | None, ...]
    trainable: bool = False


def specs_of(model: Model[Params], optimizer: Optimizer) -> object:
    """The model's specs, those of parameters that the optimizer leaves alone saying that they aren't learnt."""
    specs = model.specs()
    if not isinstance(optimizer, SupportsFreezing) or not optimizer.frozen_parameters:
        return specs
    frozen = optimizer.frozen_parameters

    def marked(path: tuple[object, ...], spec: Spec) -> object:
        is_frozen = jax.tree_util.keystr(path, simple=True, separator="/") in frozen
        return _Frozen(spec.shape, spec.dtype, tuple(spec.axes)) if is_frozen else spec

    return jax.tree_util.tree_map_with_path(marked, specs)


def learnt(specs: object, tree: Tree) -> Tree:
    """Of a tree congruent to ``specs``, what belongs to parameters that are learnt."""

    def keep(spec: Spec, leaf: object) -> object:
        return leaf if not isinstance(spec, SupportsTrainable) or spec.trainable else None

    return cast("Tree", jax.tree.map(keep, specs, tree))


def completed(part: Tree, tree: Tree) -> Tree:
    """``tree``, with the leaves of ``part`` (see ``learnt``) in their places."""
    chosen = jax.tree.map(lambda new, old: old if new is None else new, part, tree, is_leaf=lambda leaf: leaf is None)
    return cast("Tree", chosen)
