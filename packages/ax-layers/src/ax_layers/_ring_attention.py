"""Context parallelism by a ring (Liu, Zaharia & Abbeel 2023, arXiv:2310.01889).

Queries stay where they are; keys and values travel from device to device. Each attends to the shard it has in hand and merges the
output into what it has so far by the log-sum-exps, while the shard is on its way to the next already. The backward pass
sends keys and values around once more, and with them their gradients, to which every device adds its part. So a device
never holds more than a few shards, whatever the length.

Shards of keys that no query of a device can see by their positions or segments cost it no work. When nobody sees a shard that has
come so far, the ring stops: with a window, or with short documents packed together, after a few hops. Gradients then take
hops of powers of two home.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar

import ax_config
import jax
import jax.numpy as jnp
from ax_config import Buildable, field
from jax.ad_checkpoint import checkpoint_name

from ._attention_by_shards import Rows, Shard, attend_by_shards, number_in, place_in
from ._module import Module, scoped
from ._partial_dot_product import PartialDotProduct
from .protocols import PartialAttention

T = TypeVar("T")

_NOTHING_SEEN = -1e35
_INT32_MAX = 2**31 - 1


class RingAttention(Module):
    """Attends by ``part`` to the shards of keys along "seq", one after the other; fits ``AttentionFn``.

    Under ``jax.checkpoint`` a policy that saves the name "attention_residuals" spares sending keys around a third time.
    """

    class Config(ax_config.Config["RingAttention"]):
        """Who attends to a shard."""

        part: Buildable[PartialAttention] = field(default_factory=PartialDotProduct.Config)

    def __init__(self, cfg: Config, /) -> None:
        super().__init__()
        self.part = self.child("part", cfg.part)

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
        rule = _Rule(scale, causal, window, logit_cap)
        return attend_by_shards(
            self.sharder,
            lambda shard: _around(self.part, rule, shard),
            query,
            key,
            value,
            query_positions=query_positions,
            key_positions=key_positions,
            query_segments=query_segments,
            key_segments=key_segments,
        )


class _Rule(NamedTuple):
    """What is static about a call."""

    scale: float
    causal: bool
    window: int | None
    logit_cap: float | None

    def of(self, half: Callable[..., T], queries: Rows, keys: Rows) -> Callable[..., T]:
        """``half`` of a partial attention, told all but its arrays."""
        return functools.partial(
            half,
            **self._asdict(),
            query_positions=queries.positions,
            key_positions=keys.positions,
            query_segments=queries.segments,
            key_segments=keys.segments,
        )


class _Keys(NamedTuple):
    """What travels."""

    key: jax.Array
    value: jax.Array
    rows: Rows


_KeyGradients: TypeAlias = tuple[jax.Array, jax.Array]
"""Of keys and of values, float32."""

_Residuals: TypeAlias = tuple[jax.Array, _Keys, Rows, jax.Array, jax.Array]
"""The query, the own keys, where the queries stand, the output and the log-sum-exp."""


class _Softmax(NamedTuple):
    """A softmax so far: outputs ``[B, T, N, H]`` and log-sum-exps ``[B, N, T]``, float32."""

    out: jax.Array
    log_sum_exp: jax.Array

    def with_more(self, out: jax.Array, log_sum_exp: jax.Array) -> _Softmax:
        """Over other keys too."""
        together = jnp.logaddexp(self.log_sum_exp, log_sum_exp)

        def share(log_sum_exp: jax.Array) -> jax.Array:
            return jnp.exp(log_sum_exp - together).swapaxes(1, 2)[..., None]

        return _Softmax(self.out * share(self.log_sum_exp) + out * share(log_sum_exp), together)


def _around(part: PartialAttention, rule: _Rule, shard: Shard) -> jax.Array:
    """The output for a device's queries, ``[B, T, N, H]`` in their dtype."""
    ring = _Ring(shard.seq, shard.rows)

    @jax.custom_vjp
    def attend(query: jax.Array, key: jax.Array, value: jax.Array, queries: Rows, keys: Rows) -> jax.Array:
        return forward(query, key, value, queries, keys)[0]

    def forward(
        query: jax.Array, key: jax.Array, value: jax.Array, queries: Rows, keys: Rows
    ) -> tuple[jax.Array, _Residuals]:
        own = _Keys(key, value, keys)
        itinerary = ring.itinerary(rule, queries, keys)

        def visit(hops: jax.Array, keys: _Keys, softmax: _Softmax) -> _Softmax:
            def merged() -> _Softmax:
                return softmax.with_more(*rule.of(part.forward, queries, keys.rows)(query, keys.key, keys.value))

            after: _Softmax = jax.lax.cond(itinerary.seen[hops], merged, lambda: softmax)
            return after

        def hop(hops: jax.Array, carried: tuple[_Keys, _Softmax]) -> tuple[_Keys, _Softmax]:
            keys, softmax = carried
            onward = ring.send(keys)  # on its way while this device computes
            return onward, visit(hops, keys, softmax)

        batch, length, num_heads, _ = query.shape
        nothing = _Softmax(
            jnp.zeros((batch, length, num_heads, value.shape[-1]), jnp.float32),
            jnp.full((batch, num_heads, length), _NOTHING_SEEN, jnp.float32),
        )
        last_keys, softmax = jax.lax.fori_loop(0, itinerary.last, hop, (own, nothing))
        softmax = visit(itinerary.last, last_keys, softmax)
        # Named, so that a rematerialisation policy can keep the two and need not send the keys around again.
        out, log_sum_exp = checkpoint_name(
            (softmax.out.astype(query.dtype), softmax.log_sum_exp), "attention_residuals"
        )
        return out, (query, own, queries, out, log_sum_exp)

    def backward(residuals: _Residuals, d_out: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, None, None]:
        query, own, queries, out, log_sum_exp = residuals
        itinerary = ring.itinerary(rule, queries, own.rows)

        def visit(hops: jax.Array, keys: _Keys, d_query: jax.Array) -> tuple[jax.Array, _KeyGradients]:
            def added() -> tuple[jax.Array, _KeyGradients]:
                half = rule.of(part.backward, queries, keys.rows)
                to_query, *to_keys = half(query, keys.key, keys.value, out, log_sum_exp, d_out)
                return d_query + to_query, (to_keys[0], to_keys[1])

            after: tuple[jax.Array, _KeyGradients]
            after = jax.lax.cond(itinerary.seen[hops], added, lambda: (d_query, nothing))
            return after

        def visit_and_add(
            hops: jax.Array, keys: _Keys, d_query: jax.Array, d_keys: _KeyGradients
        ) -> tuple[jax.Array, _KeyGradients]:
            arriving = ring.send(d_keys)  # so is what others made of the gradients
            d_query, more = visit(hops, keys, d_query)
            return d_query, (arriving[0] + more[0], arriving[1] + more[1])

        def hop(
            hops: jax.Array, carried: tuple[_Keys, jax.Array, _KeyGradients]
        ) -> tuple[_Keys, jax.Array, _KeyGradients]:
            keys, d_query, d_keys = carried
            onward = ring.send(keys)
            return onward, *visit_and_add(hops, keys, d_query, d_keys)

        d_query, *zeros = (jnp.zeros(x.shape, jnp.float32) for x in (query, own.key, own.value))
        nothing = (zeros[0], zeros[1])
        keys, d_query, d_keys = jax.lax.fori_loop(0, itinerary.last, hop, (own, d_query, nothing))
        d_query, d_keys = visit_and_add(itinerary.last, keys, d_query, d_keys)
        d_key, d_value = ring.send_home(d_keys, itinerary.last)
        gradients = d_query.astype(query.dtype), d_key.astype(own.key.dtype), d_value.astype(own.value.dtype)
        return *gradients, None, None

    attend.defvjp(forward, backward)
    out: jax.Array = attend(shard.query, shard.key, shard.value, shard.queries, shard.keys)
    return out


class _Itinerary(NamedTuple):
    """How far shards of keys travel."""

    last: jax.Array
    """The number of hops after which no device sees what comes, the same on all of them."""
    seen: jax.Array
    """``[n]`` bool: whether this device's queries may see the shard that it has after so many hops."""


class _Span(NamedTuple):
    """The least and the largest position and segment of rows, ``[B]``; without rows the least is more than the largest."""

    positions: tuple[jax.Array, jax.Array]
    segments: tuple[jax.Array, jax.Array] | None

    @classmethod
    def of(cls, rows: Rows, counted: jax.Array) -> _Span:
        """Of those that are ``counted``."""

        def span(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            least = x.min(axis=1, where=counted, initial=_INT32_MAX)
            return least, x.max(axis=1, where=counted, initial=-_INT32_MAX)

        return cls(span(rows.positions), None if rows.segments is None else span(rows.segments))


class _Ring(NamedTuple):
    """The devices along ``axes``, the last next to the first; ``together`` are those that loop in step."""

    axes: tuple[str, ...]
    together: tuple[str, ...]

    def send(self, x: T, hops: int = 1) -> T:
        """To the device so many places further, and what comes from as far behind."""
        number = number_in(self.axes)
        if number == 1:
            return x
        arrived: T = jax.lax.ppermute(x, self.axes, [(i, (i + hops) % number) for i in range(number)])
        return arrived

    def send_home(self, x: T, hops: jax.Array) -> T:
        """To the device from which ``hops`` hops led here: on around the ring, a hop for each binary digit of the way."""
        number = number_in(self.axes)
        left = (number - hops) % number
        for digit in range((number - 1).bit_length()):
            far = functools.partial(self.send, hops=1 << digit)
            x = jax.lax.cond((left >> digit) & 1 == 1, far, lambda x: x, x)
        return x

    def itinerary(self, rule: _Rule, queries: Rows, keys: Rows) -> _Itinerary:
        """By the spans of all shards of keys."""
        number = number_in(self.axes)
        span = _Span.of(queries, jnp.ones(queries.positions.shape, bool))
        spans = jax.tree.map(self._from_all, _Span.of(keys, keys.positions >= 0))
        hops = jnp.arange(number, dtype=jnp.int32)
        seen = _may_see(rule, span, spans)[(place_in(self.axes) - hops) % number]
        last = jnp.max(hops, where=seen, initial=0)
        return _Itinerary(jax.lax.pmax(last, self.together) if self.together else last, seen)

    def _from_all(self, x: jax.Array) -> jax.Array:
        gathered: jax.Array = jax.lax.all_gather(x, self.axes) if self.axes else x[None]
        return gathered


def _may_see(rule: _Rule, queries: _Span, keys: _Span) -> jax.Array:
    """``[n]``: whether in any sequence of the batch a query may see a key of that shard."""
    (q_first, q_last), (k_first, k_last) = queries.positions, keys.positions
    sees = k_first <= k_last
    if rule.causal:
        sees = sees & (k_first <= q_last[None])
    if rule.window is not None:
        sees = sees & (k_last > q_first[None] - rule.window)
    if queries.segments is not None and keys.segments is not None:
        (q_low, q_high), (k_low, k_high) = queries.segments, keys.segments
        sees = sees & (k_low <= q_high[None]) & (k_high >= q_low[None])
    return sees.any(axis=1)
