"""The kit passes a right decoder and catches wrong ones."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest
from ax_inference.testing import TinyCache, TinyDecoder, TinyParams, check_decoder

TINY = TinyDecoder(vocab_size=13)
PARAMS = TINY.init(jax.random.key(0))


def test_tiny_decoder_passes() -> None:
    check_decoder(TINY, PARAMS, 13)


@dataclass(frozen=True)
class _Wrapped:
    """The tiny decoder, for others to break one method of."""

    inner: TinyDecoder = TINY

    def init_cache(self, batch_size: int, max_length: int, /) -> TinyCache:
        return self.inner.init_cache(batch_size, max_length)

    def prefill(
        self, params: TinyParams, tokens: jax.Array, lengths: jax.Array, cache: TinyCache, /
    ) -> tuple[jax.Array, TinyCache]:
        return self.inner.prefill(params, tokens, lengths, cache)

    def decode(self, params: TinyParams, tokens: jax.Array, cache: TinyCache, /) -> tuple[jax.Array, TinyCache]:
        return self.inner.decode(params, tokens, cache)


class _ReadsPadding(_Wrapped):
    def prefill(
        self, params: TinyParams, tokens: jax.Array, lengths: jax.Array, cache: TinyCache, /
    ) -> tuple[jax.Array, TinyCache]:
        return self.inner.prefill(params, tokens, jnp.full_like(lengths, tokens.shape[1]), cache)


class _MixesTheBatch(_Wrapped):
    def prefill(
        self, params: TinyParams, tokens: jax.Array, lengths: jax.Array, cache: TinyCache, /
    ) -> tuple[jax.Array, TinyCache]:
        logits, cache = self.inner.prefill(params, tokens, lengths, cache)
        return logits - logits.mean(axis=0, keepdims=True), cache


class _ForgetsWhatItDecodes(_Wrapped):
    def decode(self, params: TinyParams, tokens: jax.Array, cache: TinyCache, /) -> tuple[jax.Array, TinyCache]:
        return self.inner.decode(params, tokens, cache)[0], cache


class _Bfloat16(_Wrapped):
    def decode(self, params: TinyParams, tokens: jax.Array, cache: TinyCache, /) -> tuple[jax.Array, TinyCache]:
        logits, cache = self.inner.decode(params, tokens, cache)
        return logits.astype(jnp.bfloat16), cache


class _GrowsItsCache(_Wrapped):
    def decode(self, params: TinyParams, tokens: jax.Array, cache: TinyCache, /) -> tuple[jax.Array, TinyCache]:
        logits, cache = self.inner.decode(params, tokens, cache)
        return logits, cache._replace(keys=jnp.pad(cache.keys, ((0, 0), (0, 1), (0, 0))))


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (_ReadsPadding(), "more and other padding: logits differ"),
        (_MixesTheBatch(), "alone and in a batch: logits differ"),
        (_ForgetsWhatItDecodes(), "2 tokens by decode, and all by prefill: logits differ"),
        (_Bfloat16(), "decode: logits in bfloat16, wanted float32"),
        (_GrowsItsCache(), "decode: the cache changed from .*24, 16.* to .*25, 16"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_wrong_decoders_are_caught(decoder: _Wrapped, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_decoder(decoder, PARAMS, 13)


def test_a_wrong_vocabulary_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"logits of shape \(3, 13\), wanted \[B, V\] = \(3, 12\)"):
        check_decoder(_Wrapped(), PARAMS, 12)
