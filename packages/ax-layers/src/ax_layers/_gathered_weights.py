"""Experts' weights that are split along the model's width where they are kept, and whole where they are used.

A function that runs shard by shard takes them as they are kept and gathers them itself. Were they gathered before it, their
gradient would leave it as a sum over all devices of whole weights, of which each device then keeps a part; so it leaves as
just that part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax

from .protocols import Axes

WIDTH = "embed"
"""What parameters call the model's width."""


def kept(axes: Sequence[Axes]) -> list[Axes]:
    """The names of the weights' dims where they are kept; ``axes`` has None for the model's width."""
    return [tuple(WIDTH if name is None else name for name in of_one) for of_one in axes]


def gathered(
    weights: Sequence[jax.Array], axes: Sequence[Axes], split: Mapping[str, tuple[str, ...]]
) -> list[jax.Array]:
    """The weights whole along the model's width; called within ``shard_map``, whose names are split as ``split`` says."""
    over = split.get(WIDTH)
    if over is None:
        return list(weights)
    return [
        jax.lax.all_gather(weight, over, axis=list(of_one).index(None), tiled=True)
        for weight, of_one in zip(weights, axes, strict=True)
    ]
