"""The gradient of a token that stands in many places."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_layers import Embedding, functional
from ax_layers.protocols import ArrayTree, Sharder
from grid import Grid

PLACES = 4_096


@pytest.mark.parametrize(
    "sharder", [None, Grid({"rows": 8}, {"batch": ("rows",)}), Grid({"columns": 8}, {"vocab": ("columns",)})]
)
def test_a_frequent_token_is_counted_in_full_in_narrow_types(sharder: Sharder | None) -> None:
    config = Embedding.Config(vocab_size=16, dim=4, compute_dtype="bfloat16")
    call = functional(config.build()) if sharder is None else functional(config.build(), sharder=sharder)

    def loss(params: ArrayTree, tokens: jax.Array) -> jax.Array:
        return call(params, None, tokens)[0].astype(jnp.float32).sum()

    tokens = jnp.full((8, PLACES // 8), 3, jnp.int32)
    gradient = jax.jit(jax.grad(loss))({"weight": jnp.ones((16, 4))}, tokens)
    wanted = np.zeros((16, 4))
    wanted[3] = PLACES
    np.testing.assert_array_equal(gradient["weight"], wanted)
