"""For those who write decoders: a check that any `Decoder` must pass, and a decoder of ninety lines to look at.

`TinyDecoder` is a language model of one attention layer with a dense cache, in plain JAX: enough to test samplers and
generation with, and an example of how a model of any origin fits the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypedDict, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .protocols import Decoder

Params = TypeVar("Params")
Cache = TypeVar("Cache")


class TinyParams(TypedDict):
    """Parameters of `TinyDecoder`."""

    embedding: jax.Array
    query: jax.Array
    key: jax.Array
    value: jax.Array


class TinyCache(NamedTuple):
    """What `TinyDecoder` has read: keys and values ``[B, S, D]`` and how many tokens of each sequence, ``[B]``."""

    keys: jax.Array
    values: jax.Array
    lengths: jax.Array


@dataclass(frozen=True, kw_only=True)
class TinyDecoder:
    """Attention of one head over embeddings with sinusoidal positions, tied output; fits ``Decoder``."""

    vocab_size: int
    dim: int = 16

    def init(self, key: jax.Array, /) -> TinyParams:
        """Random parameters."""
        keys = jax.random.split(key, 4)
        query, key_, value = (jax.random.normal(k, (self.dim, self.dim)) * self.dim**-0.5 for k in keys[1:])
        embedding = jax.random.normal(keys[0], (self.vocab_size, self.dim))
        return TinyParams(embedding=embedding, query=query, key=key_, value=value)

    def init_cache(self, batch_size: int, max_length: int, /) -> TinyCache:
        """An empty cache."""
        empty = jnp.zeros((batch_size, max_length, self.dim))
        return TinyCache(empty, empty, jnp.zeros(batch_size, jnp.int32))

    def prefill(
        self, params: TinyParams, tokens: jax.Array, lengths: jax.Array, cache: TinyCache, /
    ) -> tuple[jax.Array, TinyCache]:
        """Read prompts; the logits after their last tokens."""
        logits, cache = self._read(params, tokens, lengths, cache)
        return jnp.take_along_axis(logits, (lengths - 1)[:, None, None], axis=1)[:, 0], cache

    def decode(self, params: TinyParams, tokens: jax.Array, cache: TinyCache, /) -> tuple[jax.Array, TinyCache]:
        """Read a token a sequence; the logits after it."""
        logits, cache = self._read(params, tokens[:, None], jnp.ones_like(tokens), cache)
        return logits[:, 0], cache

    def _read(
        self, params: TinyParams, tokens: jax.Array, lengths: jax.Array, cache: TinyCache
    ) -> tuple[jax.Array, TinyCache]:
        """Read ``lengths`` tokens of ``[B, T]`` behind those read before; logits ``[B, T, V]``."""
        steps = jnp.arange(tokens.shape[1])[None, :]
        positions = cache.lengths[:, None] + steps
        frequencies = 100.0 ** -jnp.linspace(0.0, 1.0, self.dim // 2)[None, None, :]
        angles = positions[:, :, None].astype(jnp.float32) * frequencies
        x = params["embedding"][tokens] + jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)

        # Padding is written to no slot: the index past the end is dropped.
        slots = jnp.where(steps < lengths[:, None], positions, cache.keys.shape[1])
        rows = jnp.arange(tokens.shape[0])[:, None]
        keys = cache.keys.at[rows, slots].set(x @ params["key"], mode="drop")
        values = cache.values.at[rows, slots].set(x @ params["value"], mode="drop")

        scores = jnp.einsum("btd,bsd->bts", x @ params["query"], keys) * self.dim**-0.5
        seen = jnp.arange(keys.shape[1])[None, None, :] <= positions[:, :, None]
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        logits = (x + jnp.einsum("bts,bsd->btd", weights, values)) @ params["embedding"].T * self.dim**-0.5
        return logits, TinyCache(keys, values, cache.lengths + lengths)


def check_decoder(
    decoder: Decoder[Params, Cache], params: Params, vocab_size: int, /, *, tolerance: float = 1e-5
) -> None:
    """Raise AssertionError unless ``decoder`` keeps the protocol's promises with these parameters.

    Logits are float32 ``[B, V]``; the cache keeps its structure, shapes and dtypes; reading a text by prefill, or a part
    by prefill and the rest token by token, gives the same logits; and they depend on neither padding, nor the rest of
    the batch, nor the cache's room. Same means within ``tolerance`` times the largest logit (or 1).
    """
    rng = np.random.default_rng(0)
    lengths = np.array([5, 1, 9], np.int32)
    num_decoded, room = 4, 24
    texts = rng.integers(vocab_size, size=(3, int(lengths.max()) + num_decoded)).astype(np.int32)
    prefill, decode = jax.jit(decoder.prefill), jax.jit(decoder.decode)

    def read(rows: slice, lengths: np.ndarray, *, width: int, room: int = room) -> tuple[np.ndarray, Cache]:
        """Logits after the first ``lengths`` tokens of those texts; behind them stand random ones up to ``width``."""
        tokens = rng.integers(vocab_size, size=(len(lengths), width)).astype(np.int32)
        for row, (text, length) in enumerate(zip(texts[rows], lengths, strict=True)):
            tokens[row, :length] = text[:length]
        empty = decoder.init_cache(len(lengths), room)
        logits, cache = prefill(params, jnp.asarray(tokens), jnp.asarray(lengths), empty)
        _assert_same_layout(empty, cache, "prefill")
        return _checked(logits, len(lengths), vocab_size, "prefill"), cache

    def same(got: np.ndarray, wanted: np.ndarray, what: str) -> None:
        error, bound = float(np.abs(got - wanted).max()), tolerance * max(1.0, float(np.abs(wanted).max()))
        assert error <= bound, f"{what}: logits differ by up to {error:.3g}, more than {bound:.3g}"

    everything = slice(None)
    whole, cache = read(everything, lengths, width=9)
    same(read(everything, lengths, width=15)[0], whole, "prefill with more and other padding")
    same(read(everything, lengths, width=9, room=2 * room)[0], whole, "prefill into a cache of twice the room")
    for row, length in enumerate(lengths):
        alone, _ = read(slice(row, row + 1), lengths[row : row + 1], width=9)
        same(alone, whole[row : row + 1], f"prefill of {length} tokens alone and in a batch")

    for step in range(num_decoded):
        tokens = jnp.asarray([text[length + step] for text, length in zip(texts, lengths, strict=True)])
        logits, next_cache = decode(params, tokens, cache)
        _assert_same_layout(cache, next_cache, "decode")
        cache = next_cache
        wanted, _ = read(everything, lengths + step + 1, width=texts.shape[1])
        got = _checked(logits, len(lengths), vocab_size, "decode")
        same(got, wanted, f"{step + 1} tokens by decode, and all by prefill")


def _checked(logits: jax.Array, batch_size: int, vocab_size: int, what: str) -> np.ndarray:
    shape = (batch_size, vocab_size)
    assert logits.shape == shape, f"{what}: logits of shape {logits.shape}, wanted [B, V] = {shape}"
    assert logits.dtype == jnp.float32, f"{what}: logits in {logits.dtype}, wanted float32"
    values = np.asarray(logits)
    assert np.isfinite(values).all(), f"{what}: logits that aren't finite"
    return values


def _assert_same_layout(before: Cache, after: Cache, what: str) -> None:
    """The cache may change its values only: it is donated from step to step."""
    layouts = [
        [
            (jax.tree_util.keystr(path), leaf.shape, leaf.dtype)
            for path, leaf in jax.tree_util.tree_leaves_with_path(cache)
        ]
        for cache in (before, after)
    ]
    assert layouts[0] == layouts[1], f"{what}: the cache changed from {layouts[0]} to {layouts[1]}"
