"""An order of the sequence that gives devices along it equal work under a causal mask (Llama 3, arXiv:2407.21783, §3.3.2).

Where the sequence is split in order, the device with its end sees everything and the one with its beginning nearly nothing.
Cut in ``2n`` pieces instead, device ``i`` of ``n`` gets pieces ``i`` and ``2n - 1 - i``, an early and a late one, and what the two
see together is the same for every device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

import ax_config
import jax
import jax.numpy as jnp
from ax_config import REQUIRED, Buildable

from ._attention_by_shards import number_in, place_in
from ._functional import functional
from ._module import scoped
from ._wrapper import Wrapper
from .protocols import Axes, LanguageModel, LMCache

P = ParamSpec("P")
R = TypeVar("R")

_ROWS: Axes = ("batch", "seq")


class Zigzag(Wrapper):
    """A language model that is given its batches in zigzag order; fits ``LanguageModel``, and is the same model otherwise.

    Loss and gradients are those without it, for a model to which a token's place is what positions and segments say. One that looks at
    neighbouring rows (convolutions, recurrences, predictions beyond the next token) isn't such a model.
    """

    class Config(ax_config.Config["Zigzag"]):
        """The model."""

        vocab_size: int = REQUIRED
        model: Buildable[LanguageModel]

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self._model = self.wrap(cfg.model, vocab_size=cfg.vocab_size)

    @scoped
    def __call__(
        self, tokens: jax.Array, /, *, positions: jax.Array | None = None, segments: jax.Array | None = None
    ) -> jax.Array:
        """The model's logits, in the order of the tokens."""
        return self._run(self._model, tokens, positions=positions, segments=segments)

    @scoped
    def loss(
        self, batch: Mapping[str, jax.Array], /, *, train: bool
    ) -> tuple[jax.Array, Mapping[str, tuple[jax.Array, jax.Array]]]:
        """The model's loss and metrics of the batch in zigzag order: of whatever it has for each token, ``[B, T, …]``.

        Raises:
            ValueError: A device's share of the sequence isn't a whole number of pairs of pieces.
        """
        tokens = batch["tokens"]
        order = self._order(tokens)
        if order is None:
            return self._run(self._model.loss, batch, train=train)
        in_order = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
        moved = {
            name: self.constrain(x[:, order], (*_ROWS, *(None,) * (x.ndim - 2))) if x.shape[:2] == tokens.shape else x
            for name, x in {"positions": in_order, **batch}.items()
        }
        return self._run(self._model.loss, moved, train=train)

    def init_cache(self, batch_size: int, max_length: int, /) -> LMCache:
        """The model's."""
        return self._model.init_cache(batch_size, max_length)

    @scoped
    def prefill(self, tokens: jax.Array, lengths: jax.Array, cache: LMCache, /) -> tuple[jax.Array, LMCache]:
        """The model's."""
        return self._run(self._model.prefill, tokens, lengths, cache)

    @scoped
    def decode(self, tokens: jax.Array, cache: LMCache, /) -> tuple[jax.Array, LMCache]:
        """The model's."""
        return self._run(self._model.decode, tokens, cache)

    def _order(self, tokens: jax.Array) -> jax.Array | None:
        """Which row of the sequence comes where, ``[T]``; None where the sequence isn't split."""
        # Asked for as attention has it, whose heads may be split over devices that the sequence is split over elsewhere: of
        # no heads at all there is an equal number for all devices.
        axes, no_heads = [_ROWS, ("heads",)], jnp.zeros(0, jnp.int32)
        seq = self.sharder.split(axes, [tokens.shape, no_heads.shape]).get("seq", ())
        if not seq:
            return None

        def own(tokens: jax.Array, _: jax.Array) -> jax.Array:
            number, length = number_in(seq), tokens.shape[1]
            if length % 2:
                raise ValueError(
                    f"Zigzag cuts the sequence in two pieces for each of {number} devices, but {number * length} rows don't make "
                    f"{2 * number} equal pieces"
                )
            piece, place = length // 2, place_in(seq)
            rows = jnp.arange(piece, dtype=jnp.int32)
            return jnp.concatenate([place * piece + rows, (2 * number - 1 - place) * piece + rows])

        return self.sharder.shard_map(own, in_axes=axes, out_axes=("seq",))(tokens, no_heads)

    def _run(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result, collected = functional(call)(self.params, self.random, *args, **kwargs)
        self.absorb(collected)
        return result
