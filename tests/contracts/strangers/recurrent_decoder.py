"""An Elman network (1990) in plain JAX: a decoder whose cache is one vector a sequence, however long that is."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Params = dict[str, jax.Array]


class RecurrentDecoder:
    """Fits ``Decoder`` of ax-inference; with ``D`` hidden numbers, its cache is ``[B, D]``."""

    def __init__(self, vocab_size: int, width: int) -> None:
        self._vocab_size, self._width = vocab_size, width

    def with_params(self, key: jax.Array, /) -> tuple[RecurrentDecoder, Params]:
        shapes = {"input": (self._vocab_size, self._width), "state": (self._width, self._width)}
        shapes["output"] = (self._width, self._vocab_size)
        keys = jax.random.split(key, len(shapes))
        return self, {name: jax.random.normal(k, shapes[name]) for name, k in zip(shapes, keys, strict=True)}

    def init_cache(self, batch_size: int, max_length: int, /) -> jax.Array:
        return jnp.zeros((batch_size, self._width))

    def prefill(
        self, params: Params, tokens: jax.Array, lengths: jax.Array, cache: jax.Array, /
    ) -> tuple[jax.Array, jax.Array]:
        def read(hidden: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            token, index = step
            return jnp.where((index < lengths)[:, None], self._next(params, token, hidden), hidden), None

        cache, _ = jax.lax.scan(read, cache, (tokens.T, jnp.arange(tokens.shape[1])))
        return cache @ params["output"], cache

    def decode(self, params: Params, tokens: jax.Array, cache: jax.Array, /) -> tuple[jax.Array, jax.Array]:
        cache = self._next(params, tokens, cache)
        return cache @ params["output"], cache

    def _next(self, params: Params, tokens: jax.Array, hidden: jax.Array) -> jax.Array:
        return jnp.tanh(params["input"][tokens] + hidden @ params["state"])
