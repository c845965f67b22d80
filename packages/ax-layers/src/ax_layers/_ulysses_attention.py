"""Context parallelism by heads (DeepSpeed-Ulysses, Jacobs et al. 2023, arXiv:2309.14509).

A device trades its share of the sequence for a share of the heads: an all-to-all gives it the whole sequence of some heads, any
attention does the rest, and a second all-to-all brings the outputs back. What is sent is ``1/n`` of what gathering sends,
and no device ever holds more than its part; but there can't be more devices than query heads.
"""

from __future__ import annotations

import ax_config
import jax
import jax.numpy as jnp
from ax_config import Buildable, field, partial_for

from ._attention_by_shards import Rows, Shard, attend_by_shards, number_in
from ._dot_product_attention import dot_product_attention
from ._module import Module, scoped
from .protocols import AttentionFn


class UlyssesAttention(Module):
    """Runs ``inner`` with whole sequences and a part of the heads, wherever "seq" is split; fits ``AttentionFn``.

    The devices along "seq" divide the query heads among them. Where they don't divide the key heads, these are repeated before
    they are sent, no more often than is needed for each device to get the key heads of its queries.
    """

    class Config(ax_config.Config["UlyssesAttention"]):
        """Who attends."""

        inner: Buildable[AttentionFn] = field(default_factory=lambda: partial_for(dot_product_attention))

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.inner = self.child("inner", cfg.inner)

    @scoped
    def __call__(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        /,
        *,
        scale: float,
        causal: bool,
        window: int | None = None,
        logit_cap: float | None = None,
        query_positions: jax.Array | None = None,
        key_positions: jax.Array | None = None,
        query_segments: jax.Array | None = None,
        key_segments: jax.Array | None = None,
    ) -> jax.Array:
        """See ``AttentionFn``.

        Raises:
            ValueError: The devices along "seq" don't divide the query heads.
        """

        def attend(shard: Shard) -> jax.Array:
            number = number_in(shard.seq)
            repeats = _repeats(shard, number)

            def fetched(x: jax.Array) -> jax.Array:
                whole: jax.Array = jax.lax.all_gather(x, shard.seq, axis=1, tiled=True) if shard.seq else x
                return whole

            queries: Rows = jax.tree.map(fetched, shard.queries)
            keys: Rows = jax.tree.map(fetched, shard.keys)
            out = self.inner(
                _to_heads(shard.query, shard.seq),
                *(_to_heads(jnp.repeat(x, repeats, axis=2), shard.seq) for x in (shard.key, shard.value)),
                scale=scale,
                causal=causal,
                window=window,
                logit_cap=logit_cap,
                query_positions=None if query_positions is None else queries.positions,
                key_positions=None if key_positions is None else keys.positions,
                query_segments=queries.segments,
                key_segments=keys.segments,
            )
            return _to_rows(out, shard.seq)

        return attend_by_shards(
            self.sharder,
            attend,
            query,
            key,
            value,
            query_positions=query_positions,
            key_positions=key_positions,
            query_segments=query_segments,
            key_segments=key_segments,
        )


def _to_heads(x: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """From all heads of a share of the rows, ``[B, T / n, N, H]``, to all rows of a share of the heads ``[B, T, N / n, H]``."""
    if not axes:
        return x
    (batch, rows, heads, size), number = x.shape, number_in(axes)
    parts = jnp.moveaxis(x.reshape(batch, rows, number, heads // number, size), 2, 0)
    return jnp.moveaxis(_exchanged(parts, axes), 0, 1).reshape(batch, number * rows, heads // number, size)


def _to_rows(x: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """The way back."""
    if not axes:
        return x
    (batch, rows, heads, size), number = x.shape, number_in(axes)
    parts = jnp.moveaxis(x.reshape(batch, number, rows // number, heads, size), 1, 0)
    return jnp.moveaxis(_exchanged(parts, axes), 0, 2).reshape(batch, rows // number, number * heads, size)


def _exchanged(parts: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """``[n, …]``, of which a device sends part ``i`` to device ``i``. The parts lie apart: sent as they lie between the other
    dims they would be copied and padded on the way, to a third more memory for a whole layer.
    """
    received: jax.Array = jax.lax.all_to_all(parts, axes, split_axis=0, concat_axis=0, tiled=True)
    return received


def _repeats(shard: Shard, number: int) -> int:
    """How often each key head has to be sent, for ``number`` devices to get equal parts of them."""
    num_heads, num_kv_heads = shard.query.shape[2], shard.key.shape[2]
    if num_heads % number:
        raise ValueError(
            f"UlyssesAttention divides the query heads over the devices along the sequence: {num_heads} over {number} doesn't "
            "go; use fewer, or RingAttention or GatheredAttention"
        )
    group = num_heads // num_kv_heads
    return next(times for times in range(1, group + 1) if group % times == 0 and num_kv_heads * times % number == 0)
