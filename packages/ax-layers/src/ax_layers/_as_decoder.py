"""A causal language model, as what sampling asks for: a cache, prefill, and decode as pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from ._functional import functional
from ._sharder import Unsharded
from .protocols import ArrayTree, LanguageModel, LMCache, Sharder


@dataclass(frozen=True)
class ModuleDecoder:
    """Fits ``Decoder`` of ax-inference."""

    module: LanguageModel
    sharder: Sharder

    def init_cache(self, batch_size: int, max_length: int, /) -> LMCache:
        """An empty cache for ``batch_size`` sequences of up to ``max_length`` tokens, prompt included."""
        return self.module.init_cache(batch_size, max_length)

    def prefill(
        self, params: ArrayTree, tokens: jax.Array, lengths: jax.Array, cache: LMCache, /
    ) -> tuple[jax.Array, LMCache]:
        """Read prompts ``[B, T]`` of ``lengths`` ``[B]``, padded on the right; logits ``[B, V]`` float32 that follow."""
        call = functional(self.module.prefill, sharder=self.sharder)
        return call(params, None, tokens, lengths, cache)[0]

    def decode(self, params: ArrayTree, tokens: jax.Array, cache: LMCache, /) -> tuple[jax.Array, LMCache]:
        """Read one more token a sequence, ``[B]``; logits ``[B, V]`` float32 that follow."""
        return functional(self.module.decode, sharder=self.sharder)(params, None, tokens, cache)[0]


def as_decoder(module: LanguageModel, /, *, sharder: Sharder | None = None) -> ModuleDecoder:
    """``module`` for sampling; its activations are placed by ``sharder``."""
    return ModuleDecoder(module, Unsharded() if sharder is None else sharder)
