"""The check that a layer gives on many devices what it gives on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from ax_config import Buildable

from ax_layers._functional import functional
from ax_layers._module import Module
from ax_layers._param_spec import SpecTree
from ax_layers.protocols import ArrayTree, Sharder


def check_sharded(
    layer: Buildable[Module] | Module,
    /,
    *inputs: jax.Array,
    sharder: Sharder,
    shardings: Callable[[SpecTree], object],
    tolerance: float = 1e-5,
) -> None:
    """Check that with ``sharder`` a layer gives the results, collections and gradients that it gives without.

    Args:
        layer: The layer, or its config; called as ``layer(*inputs)``.
        inputs: Their first dim is the batch.
        sharder: Splits activations over several devices.
        shardings: From specs to a ``jax.sharding.Sharding`` for each parameter.
        tolerance: Relative; of an array's largest element, if that is more than 1, also absolute.
    """
    module = layer if isinstance(layer, Module) else layer.build()
    params = jax.jit(module.init)(jax.random.key(0))
    placed = jax.device_put(params, shardings(module.specs()))

    def run(params: ArrayTree, sharder: Sharder | None) -> object:
        pure = functional(cast("Callable[..., object]", module), sharder=sharder)
        rng = np.random.default_rng(15_485_863)  # not a seed that the inputs were made with

        def call(params: ArrayTree) -> tuple[jax.Array, object]:
            given = inputs
            if sharder is not None:
                given = tuple(sharder.constrain(x, ("batch", *(None,) * (x.ndim - 1))) for x in inputs)
            results = pure(params, jax.random.key(1), *given)
            outs = jax.tree.leaves(results[0])
            sums = [(out * jnp.asarray(rng.standard_normal(out.shape), out.dtype)).sum() for out in outs]
            return jnp.stack(sums).sum(), results

        (_, results), gradients = jax.jit(jax.value_and_grad(call, has_aux=True))(params)
        return results, gradients

    pairs = zip(
        *(jax.tree_util.tree_leaves_with_path(r) for r in (run(placed, sharder), run(params, None))), strict=True
    )
    for (path, got), (_, wanted) in pairs:
        largest = float(jnp.abs(wanted.astype(jnp.float32)).max(initial=1.0))
        np.testing.assert_allclose(
            got.astype(jnp.float32),
            wanted.astype(jnp.float32),
            rtol=tolerance,
            atol=tolerance * largest,
            err_msg=f"many devices and one differ: at {jax.tree_util.keystr(path, simple=True, separator='/')}",
        )
