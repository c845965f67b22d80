"""A sequence split over a mesh: kernels by shards, in a ring, and where the compiler alone splits them, give what one device gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import ax_kernels
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_config import config_for, partial_for, setting
from ax_config.protocols import Buildable
from ax_layers import (
    Attention,
    GatheredAttention,
    Module,
    RingAttention,
    UlyssesAttention,
    Zigzag,
    as_model,
    dot_product_attention,
    functional,
)
from ax_layers.protocols import AttentionFn
from ax_mesh import Mesh

from . import small

LENGTH = 32
BLOCKED = partial_for(ax_kernels.attention.blocked, block_q=4, block_k=4)
WAYS: Mapping[str, Buildable[AttentionFn]] = {
    "gathered": GatheredAttention.Config(inner=BLOCKED),
    "ring": RingAttention.Config(part=config_for(ax_kernels.attention.PartialBlocked)(block_q=4, block_k=4)),
    "ulysses": UlyssesAttention.Config(inner=BLOCKED),
    "untold": BLOCKED,
}
SEGMENTS = jnp.asarray(np.sort(np.random.default_rng(0).integers(0, 3, (2, LENGTH)), axis=1), jnp.int32)
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "plain": {},
    "packed, window, cap": {
        "query_segments": SEGMENTS,
        "key_segments": SEGMENTS,
        "window": 9,
        "logit_cap": 2.0,
    },
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_batch_sequence_and_heads_split_at_once(way: str, options: str) -> None:
    mesh = Mesh.Config(axes={"data": 2, "sequence": 2, "tensor": 2}).build()
    rng = np.random.default_rng(1)
    arrays = tuple(jnp.asarray(rng.standard_normal((2, LENGTH, heads, 4)), jnp.float32) for heads in (4, 2, 2))
    d_out = jnp.asarray(rng.standard_normal(arrays[0].shape), jnp.float32)

    def run(attend: Callable[..., jax.Array], names: tuple[str, str] | None) -> object:
        def call(*arrays: jax.Array) -> jax.Array:
            if names is not None:
                by_kind = (names[0], names[1], names[1])
                arrays = tuple(
                    mesh.constrain(x, ("batch", "seq", heads, None)) for x, heads in zip(arrays, by_kind, strict=True)
                )
            return attend(*arrays, scale=0.5, causal=True, **OPTIONS[options])

        @jax.jit
        def gradients(*arrays: jax.Array) -> object:
            out, pull_back = jax.vjp(call, *arrays)
            return out, pull_back(d_out)

        return gradients(*arrays)

    built = WAYS[way].build()
    attend: Callable[..., jax.Array] = built
    if isinstance(built, Module):
        pure = functional(cast("Callable[..., jax.Array]", built), sharder=mesh)
        attend = lambda *arrays, **rule: pure({}, None, *arrays, **rule)[0]  # noqa: E731
    got, wanted = run(attend, ("heads", "kv_heads")), run(dot_product_attention, None)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5), got, wanted)


def test_zigzag_order_where_heads_are_split_too() -> None:
    """By the default rules, by which the sequence outside attention is split over "tensor" as well."""
    mesh = Mesh.Config(axes={"data": 2, "sequence": 2, "tensor": 2}).build()
    ring = setting(Attention, attention_fn=WAYS["ring"])
    plain = as_model(small.lm().build(vocab_size=small.VOCAB_SIZE))
    model = as_model(Zigzag.Config(model=ring(small.lm())).build(vocab_size=small.VOCAB_SIZE), sharder=mesh)
    params = jax.jit(plain.init)(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (2, LENGTH), 0, small.VOCAB_SIZE, jnp.int32)
    batch = {"tokens": tokens, "targets": jnp.roll(tokens, -1, axis=1), "segments": SEGMENTS}
    losses = [
        jax.jit(lambda p, each=each: each.loss(p, batch, key=jax.random.key(2), train=True)[0])(params)
        for each in (model, plain)
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
