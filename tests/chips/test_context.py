"""Attention over 128k tokens, forward and backward: what a chip of a v5p slice holds for it, by how many share the sequence.

Thirty-two heads of 128 with eight key heads, as in Llama 3, in bfloat16. ``pytest -s`` shows the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import cast

import ax_kernels
import jax
import jax.numpy as jnp
from ax_config import config_for, partial_for
from ax_config.protocols import Buildable
from ax_layers import Module, RingAttention, UlyssesAttention, functional
from ax_mesh import Mesh, topology

LENGTH, NUM_HEADS, HEAD_DIM = 131_072, 32, 128
BLOCKS = {"block_q": 128, "block_k": 128}
RING = RingAttention.Config(part=config_for(ax_kernels.attention.PartialBlocked)(**BLOCKS))
ULYSSES = UlyssesAttention.Config(inner=partial_for(ax_kernels.attention.blocked, **BLOCKS))


def falls(way: Buildable[Module], chips: Sequence[int], *, num_kv_heads: int) -> list[float]:
    """Bytes times chips, of the first case's: 1 where memory falls as 1 / n."""
    found = [temporary_bytes(way, num_chips, num_kv_heads) for num_chips in chips]
    for num_chips, size in zip(chips, found, strict=True):
        kind = type(way).__qualname__.partition(".")[0]
        print(f"{kind}, {num_kv_heads} key heads, {num_chips} chips: {size / 2**20:,.0f} MiB")
    return [num_chips * size / (chips[0] * found[0]) for num_chips, size in zip(chips, found, strict=True)]


def test_a_ring_holds_its_share() -> None:
    for share in falls(RING, (8, 16, 32, 64), num_kv_heads=8):
        assert abs(share - 1) < 0.15


def test_ulysses_holds_its_share_of_the_heads() -> None:
    """As long as there are key heads for all chips; after that a chip can't have less than the keys of one head."""
    for share in falls(ULYSSES, (4, 8, 16, 32), num_kv_heads=32):
        assert share < 1.15
    within, *beyond = falls(ULYSSES, (4, 8, 16, 32), num_kv_heads=8)[1:]
    assert within < 1.15
    assert within < beyond[0] < beyond[1] < 4  # it falls on


def test_a_ring_sends_while_it_computes() -> None:
    """Whatever is under way beside the visits of shards is under way while one is computed, gradients too."""
    text = compiled(RING, 8, 8).as_text()
    assert text is not None
    loops = [body for body in text.split("\n}\n") if "collective-permute-start(" in body and "conditional(" in body]
    sent = 0
    for lines in (body.splitlines() for body in loops):
        visits = [i for i, line in enumerate(lines) if " conditional(" in line]
        for i, line in enumerate(lines):
            if start := re.match(r"\s*%(\S+) = .* collective-permute-start\(", line):
                (end,) = (j for j, line in enumerate(lines) if f"collective-permute-done(%{start[1]})" in line)
                assert any(i < visit < end for visit in visits), line
                sent += 1
    assert sent >= 2 + 2 + 2 + 2  # keys and values, forward, backward, and their gradients in the loop and after it


def temporary_bytes(way: Buildable[Module], num_chips: int, num_kv_heads: int) -> int:
    memory = compiled(way, num_chips, num_kv_heads).memory_analysis()
    assert memory is not None
    return int(memory.temp_size_in_bytes)


def compiled(way: Buildable[Module], num_chips: int, num_kv_heads: int) -> jax.stages.Compiled:
    mesh = Mesh.Config(axes={"sequence": -1}).build(devices=topology(f"v5p-{2 * num_chips}"))  # counted in cores
    attend = functional(cast("Callable[..., jax.Array]", way.build()), sharder=mesh)

    def gradients(query: jax.Array, key: jax.Array, value: jax.Array, d_out: jax.Array) -> object:
        def call(*arrays: jax.Array) -> jax.Array:
            return attend({}, None, *arrays, scale=HEAD_DIM**-0.5, causal=True)[0]

        out, pull_back = jax.vjp(call, query, key, value)
        return out, pull_back(d_out)

    split = jax.sharding.NamedSharding(mesh.jax_mesh, jax.sharding.PartitionSpec(None, "sequence"))
    query, key = (
        jax.ShapeDtypeStruct((1, LENGTH, heads, HEAD_DIM), jnp.bfloat16, sharding=split)
        for heads in (NUM_HEADS, num_kv_heads)
    )
    return jax.jit(gradients).lower(query, key, key, query).compile()
