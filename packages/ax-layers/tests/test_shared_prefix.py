"""The cache of sequences that begin alike."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_layers import (
    Attention,
    Block,
    CausalLM,
    DenseKVCache,
    GatedFeedForward,
    Repeat,
    SharedPrefixKVCache,
    as_decoder,
    functional,
)
from ax_layers.protocols import LMCache

VOCAB, PREFIX, BATCH, LENGTH = 23, 5, 3, 12


def lm(cache: SharedPrefixKVCache.Config | DenseKVCache.Config) -> CausalLM:
    block = Block.Config(
        attention=Attention.Config(num_heads=4, num_kv_heads=2, head_dim=8, kv_cache=cache),
        ffn=GatedFeedForward.Config(hidden_dim=32),
    )
    return CausalLM.Config(dim=16, layers=Repeat.Config(num_layers=2, layer=block)).build(vocab_size=VOCAB)


def num_elements(cache: LMCache) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(cache))


def test_a_beginning_that_is_read_once_serves_every_sequence() -> None:
    module = lm(SharedPrefixKVCache.Config(length=PREFIX))
    params = jax.jit(module.init)(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (BATCH, LENGTH), 0, VOCAB, jnp.int32)
    tokens = tokens.at[:, :PREFIX].set(tokens[0, :PREFIX])
    whole, _ = functional(module)(params, None, tokens)
    decoder = as_decoder(module)
    cache = decoder.init_cache(BATCH, LENGTH)

    only_first = jnp.asarray([PREFIX, 0, 0], jnp.int32)
    logits, cache = decoder.prefill(params, tokens[:, :PREFIX], only_first, cache)
    np.testing.assert_allclose(logits[0], whole[0, PREFIX - 1], atol=1e-5)
    cache = LMCache(lengths=jnp.full(BATCH, PREFIX, jnp.int32), layers=cache["layers"])
    lengths = jnp.asarray([1, 3, 2], jnp.int32)
    logits, cache = decoder.prefill(params, tokens[:, PREFIX : PREFIX + 3], lengths, cache)
    at = PREFIX + lengths
    rows = jnp.arange(BATCH)
    np.testing.assert_allclose(logits, whole[rows, at - 1], atol=1e-5)
    for _ in range(3):
        logits, cache = decoder.decode(params, tokens[rows, at], cache)
        np.testing.assert_allclose(logits, whole[rows, at], atol=1e-5)
        at = at + 1


def test_it_is_smaller_than_a_dense_one_by_the_copies_of_the_beginning() -> None:
    dense, shared = (
        num_elements(as_decoder(lm(cache)).init_cache(BATCH, LENGTH))
        for cache in (DenseKVCache.Config(), SharedPrefixKVCache.Config(length=PREFIX))
    )
    a_position = 2 * (2 * 2 * 8 + 1)  # layers × (keys and values of 2 heads of 8, and the position)
    assert dense - shared == (BATCH - 1) * PREFIX * a_position


def test_lengths_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one position, got 0"):
        SharedPrefixKVCache.Config(length=0).build()
    with pytest.raises(ValueError, match="max_length 5 leaves no room"):
        as_decoder(lm(SharedPrefixKVCache.Config(length=5))).init_cache(2, 5)
