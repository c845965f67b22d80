"""The norms of every parameter, of its gradient and of its update: what a look into a training run shows, at chosen steps."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from ._groups import path_of
from ._learnt import learnt
from .protocols import Spec

DETAILS = ("grad_norm/", "update_norm/", "param_norm/")
"""What the names of details begin with."""


def details_of(
    specs: object, *, gradients: object, updates: object, params: object, stacking_axes: tuple[str, ...] = ("layers",)
) -> Mapping[str, jax.Array]:
    """Scalars by name: "grad_norm/layers/ffn/gate/weight", and the same of "update_norm" and "param_norm".

    Where parameters of layers are stacked along one of the ``stacking_axes``, there is one of each layer too: "grad_norm/….0". Norms
    are float32, of parameters that are learnt; those of the parameters are after the update.
    """
    of_learnt = learnt(specs, specs)
    norms: dict[str, jax.Array] = {}
    for kind, tree in (("grad_norm", gradients), ("update_norm", updates), ("param_norm", learnt(specs, params))):

        def add(path: tuple[object, ...], spec: Spec, x: jax.Array, kind: str = kind) -> None:
            name = f"{kind}/{path_of(path)}"
            stacked = [dim for dim, axis in enumerate(spec.axes) if axis in stacking_axes]
            others = tuple(dim for dim in range(x.ndim) if dim not in stacked)
            squares = jnp.square(jnp.abs(x.astype(jnp.float32))).sum(axis=others).reshape(-1)
            norms[name] = jnp.sqrt(squares.sum())
            if stacked:
                norms.update({f"{name}.{i}": jnp.sqrt(squares[i]) for i in range(squares.size)})

        jax.tree_util.tree_map_with_path(add, of_learnt, tree)
    return norms
