"""The corpus of attention calls: head shapes of real models at lengths a CPU can check, and every option alone and mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from ._comparison import normal

Layout = Literal["rows", "packed", "packed_segments", "decode", "continue", "ring", "empty", "disjoint"]


class AttentionOptions(TypedDict):
    """The keyword arguments of an attention call."""

    scale: float
    causal: bool
    window: int | None
    logit_cap: float | None
    query_positions: jax.Array | None
    key_positions: jax.Array | None
    query_segments: jax.Array | None
    key_segments: jax.Array | None


@dataclass(frozen=True, kw_only=True)
class AttentionCase:
    """One call: ``[batch, query_length, num_heads, head_dim]`` against ``[batch, key_length, num_kv_heads, head_dim]``.

    ``layout`` says where rows stand:
        rows: row ``i`` at position ``i``, one segment; no arrays are passed.
        packed: documents of uneven lengths after one another, positions starting anew in each, segments numbered.
        packed_segments: the same documents, segments only.
        decode: keys are a cache filled to a different length in each sequence; the queries are its last rows.
        continue: queries stand behind the middle of the keys, as in a prefill by chunks.
        ring: as decode, the cache written round and round, so that positions are out of order.
        empty: a cache that holds nothing.
        disjoint: half of the queries are of a segment that no key has.
    """

    name: str
    batch: int = 1
    query_length: int
    key_length: int
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    causal: bool = True
    window: int | None = None
    logit_cap: float | None = None
    layout: Layout = "rows"
    dtype: str = "float32"

    def arrays(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Query, key and value, the same at every call."""
        rng = np.random.default_rng(len(self.name))
        keys = (self.batch, self.key_length, self.num_kv_heads, self.head_dim)
        query = normal(rng, (self.batch, self.query_length, self.num_heads, self.head_dim), self.dtype)
        return query, normal(rng, keys, self.dtype), normal(rng, keys, self.dtype)

    def options(self) -> AttentionOptions:
        """The keyword arguments."""
        query_positions, key_positions, query_segments, key_segments = (
            None if rows is None else jnp.asarray(np.broadcast_to(rows, (self.batch, np.shape(rows)[-1])), jnp.int32)
            for rows in self._rows()
        )
        return AttentionOptions(
            scale=self.head_dim**-0.5,
            causal=self.causal,
            window=self.window,
            logit_cap=self.logit_cap,
            query_positions=query_positions,
            key_positions=key_positions,
            query_segments=query_segments,
            key_segments=key_segments,
        )

    def _rows(self) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
        """Positions of queries and keys, segments of queries and keys."""
        queries, keys = np.arange(self.query_length), np.arange(self.key_length)
        # How many tokens each sequence's cache has seen; at least the queries, which are the last of them.
        seen = np.linspace(self.query_length, self.key_length, self.batch, dtype=np.int32)[:, None]
        match self.layout:
            case "rows":
                return None, None, None, None
            case "packed" | "packed_segments":
                starts = np.array([0, 3, self.key_length // 3, self.key_length // 3 + 1, self.key_length // 2])
                segments = np.searchsorted(starts, keys, side="right")
                positions = keys - starts[segments - 1]
                if self.layout == "packed_segments":
                    return None, None, segments, segments
                return positions, positions, segments, segments
            case "decode":
                return seen - self.query_length + queries, np.where(keys < seen, keys, -1), None, None
            case "continue":
                return self.key_length // 2 + queries, keys, None, None
            case "ring":
                newest = seen + self.key_length - 1  # so old entries are overwritten
                positions = newest - (newest - keys) % self.key_length
                return newest - self.query_length + 1 + queries, positions, None, None
            case "empty":
                return queries, np.full(self.key_length, -1), None, None
            case "disjoint":
                return None, None, queries % 2, np.zeros(self.key_length)


def _causal(name: str, length: int, num_heads: int, num_kv_heads: int, head_dim: int, batch: int = 1) -> AttentionCase:
    return AttentionCase(
        name=name,
        batch=batch,
        query_length=length,
        key_length=length,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
    )


ATTENTION_CASES: tuple[AttentionCase, ...] = (
    _causal("tiny", 256, 8, 8, 32, batch=2),
    _causal("llama2_7b", 96, 32, 32, 128),
    _causal("llama2_70b", 48, 64, 8, 128),
    _causal("qwen3_30b_a3b", 64, 32, 4, 128),
    _causal("smollm2_135m", 150, 9, 3, 64, batch=2),
    _causal("length_1", 1, 4, 2, 16),
    _causal("length_prime", 67, 4, 1, 16, batch=2),
    AttentionCase(name="bidirectional", query_length=65, key_length=65, causal=False),
    AttentionCase(name="cross", batch=2, query_length=33, key_length=70, causal=False),
    AttentionCase(name="causal_more_keys", query_length=20, key_length=70),
    AttentionCase(name="causal_more_queries", query_length=70, key_length=20),
    AttentionCase(name="window_1", query_length=40, key_length=40, window=1),
    AttentionCase(name="window", batch=2, query_length=100, key_length=100, window=24),
    AttentionCase(name="window_bidirectional", query_length=70, key_length=70, window=9, causal=False),
    AttentionCase(name="window_blind", query_length=90, key_length=30, window=10),
    AttentionCase(name="capped", query_length=50, key_length=50, logit_cap=1.5),
    AttentionCase(name="packed", batch=2, query_length=100, key_length=100, layout="packed"),
    AttentionCase(name="packed_segments", query_length=100, key_length=100, layout="packed_segments"),
    AttentionCase(name="packed_bidirectional", query_length=70, key_length=70, layout="packed", causal=False),
    AttentionCase(name="decode_step", batch=3, query_length=1, key_length=80, layout="decode"),
    AttentionCase(name="decode_several", batch=3, query_length=5, key_length=80, layout="decode"),
    AttentionCase(name="prefill_chunk", query_length=30, key_length=64, layout="continue"),
    AttentionCase(name="ring_cache", batch=2, query_length=4, key_length=48, window=20, layout="ring"),
    AttentionCase(name="empty_cache", query_length=5, key_length=40, layout="empty"),
    AttentionCase(name="disjoint_segments", query_length=40, key_length=40, layout="disjoint"),
    AttentionCase(
        name="everything", batch=2, query_length=100, key_length=100, window=20, logit_cap=2.0, layout="packed"
    ),
    AttentionCase(name="tiny_bfloat16", query_length=128, key_length=128, head_dim=32, dtype="bfloat16"),
    AttentionCase(
        name="everything_bfloat16",
        batch=2,
        query_length=90,
        key_length=90,
        window=20,
        logit_cap=2.0,
        layout="packed",
        dtype="bfloat16",
    ),
)


def attention_case(name: str) -> AttentionCase:
    """The case of that name; raises KeyError that lists them all."""
    by_name = {case.name: case for case in ATTENTION_CASES}
    if name not in by_name:
        raise KeyError(f"no attention case named {name!r}; there are {', '.join(by_name)}")
    return by_name[name]
