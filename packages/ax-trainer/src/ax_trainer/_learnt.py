"""Which parameters are learnt. The others are constants of the step: no gradient, no optimizer's state, whatever their type.

A tree of the learnt ones is the whole tree with None in place of the others, which JAX and optax take for empty subtrees.
"""

from __future__ import annotations

from typing import TypeVar, cast

import jax

from .protocols import Spec, SupportsTrainable

Tree = TypeVar("Tree")


def learnt(specs: object, tree: Tree) -> Tree:
    """Of a tree congruent to ``specs``, what belongs to parameters that are learnt."""

    def keep(spec: Spec, leaf: object) -> object:
        return leaf if not isinstance(spec, SupportsTrainable) or spec.trainable else None

    return cast("Tree", jax.tree.map(keep, specs, tree))


def completed(part: Tree, tree: Tree) -> Tree:
    """``tree``, with the leaves of ``part`` (see ``learnt``) in their places."""
    chosen = jax.tree.map(lambda new, old: old if new is None else new, part, tree, is_leaf=lambda leaf: leaf is None)
    return cast("Tree", chosen)
