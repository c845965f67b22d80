"""Context parallelism by gathering: every device fetches all keys and values for the queries it has (Llama 3,
arXiv:2407.21783, §3.3.2).

The simplest way, and the best where keys are few: grouped queries make them a fraction of the queries' size. A device
holds the keys of a whole sequence while it works on one layer, but doesn't keep them for the backward pass: they are fetched again.
"""

from __future__ import annotations

import ax_config
import jax
from ax_config import Buildable, field, partial_for
from jax.ad_checkpoint import checkpoint_name

from ._attention_by_shards import Rows, Shard, attend_by_shards
from ._dot_product_attention import dot_product_attention
from ._module import Module, scoped
from .protocols import AttentionFn

_FETCHED = "gathered_attention_keys"


class GatheredAttention(Module):
    """Runs ``inner`` with a device's own queries and the keys of all devices along "seq"; fits ``AttentionFn``."""

    class Config(ax_config.Config["GatheredAttention"]):
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
        """See ``AttentionFn``."""

        def attend(shard: Shard) -> jax.Array:
            def fetched(x: jax.Array) -> jax.Array:
                if not shard.seq:
                    return x
                whole: jax.Array = checkpoint_name(jax.lax.all_gather(x, shard.seq, axis=1, tiled=True), _FETCHED)
                return whole

            def with_all_keys(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
                keys: Rows = jax.tree.map(fetched, shard.keys)
                return self.inner(
                    query,
                    fetched(key),
                    fetched(value),
                    scale=scale,
                    causal=causal,
                    window=window,
                    logit_cap=logit_cap,
                    query_positions=shard.queries.positions,
                    key_positions=keys.positions,
                    query_segments=shard.queries.segments,
                    key_segments=keys.segments,
                )

            keep = jax.checkpoint_policies.save_anything_except_these_names(_FETCHED)
            out: jax.Array = jax.checkpoint(with_all_keys, policy=keep)(shard.query, shard.key, shard.value)
            return out

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
