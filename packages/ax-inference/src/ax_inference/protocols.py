"""The seam that ax-inference owns: what sampling asks of a model."""

from __future__ import annotations

from typing import Protocol, TypeVar

import jax

Params = TypeVar("Params", contravariant=True)
Cache = TypeVar("Cache")


class Decoder(Protocol[Params, Cache]):
    """An autoregressive model with a cache of its own kind; ``B`` sequences, ``V`` tokens in the vocabulary.

    It is hashable (a frozen dataclass is), for compiled programs are kept by decoder.
    """

    def init_cache(self, batch_size: int, max_length: int, /) -> Cache:
        """An empty cache for ``batch_size`` sequences of up to ``max_length`` tokens, prompt included; a pytree of arrays."""
        ...

    def prefill(
        self, params: Params, tokens: jax.Array, lengths: jax.Array, cache: Cache, /
    ) -> tuple[jax.Array, Cache]:
        """Read prompts ``[B, T]`` int32, of which the first ``lengths`` ``[B]`` tokens count (padding stands behind them).

        Returns the logits ``[B, V]`` float32 that follow each prompt's last token, and the cache.
        """
        ...

    def decode(self, params: Params, tokens: jax.Array, cache: Cache, /) -> tuple[jax.Array, Cache]:
        """Read one more token a sequence, ``[B]`` int32; returns the logits ``[B, V]`` float32 that follow, and the cache."""
        ...
