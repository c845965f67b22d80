"""Attention by blocks with an online softmax, in plain XLA: memory linear in the length, and no work on unseen blocks.

The forward pass (Milakov & Gimelshein 2018; Rabe & Staats 2021; Dao et al. 2022) takes one block of queries at a time
and runs over the blocks of keys it can see, keeping a running maximum, sum and output. It saves the output and each
row's log-sum-exp. The backward pass takes one block of keys at a time, runs over the blocks of queries that see it,
and recomputes each block's probabilities from that log-sum-exp.

Which blocks those are is a pair of bounds a block (`_reach`), computed from the smallest and largest position and
segment in each block. For plain causal attention they are constants and the loops triangular; for packed documents and
for a partly filled cache they come from the data, and the same loops skip other documents and empty slots.

Blocks are cut out of the arrays as they lie and put in matmul order one at a time, so nothing is copied whole. Forward
logits are query-major, ``[b, k, g, t, s]``; backward ones key-major, ``[b, k, g, s, t]``, which is the order in which
two of its three products need no transpose and row statistics broadcast along the fast dim.

Letters: b batch, t queries, s keys, k key heads, g query heads of a key head, h head dim.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from ._visibility import MASKED, Rows, Rule, check

# Running maxima start here: above MASKED by so much that exp(MASKED - maximum) is exactly 0, even in a row whose
# every key is unseen. Such a row's sum stays 0.
_FLOOR = MASKED / 2

_INT32_MAX = 2**31 - 1


class Spec(NamedTuple):
    """What is static about a call."""

    scale: float
    logit_cap: float | None
    rule: Rule
    masks: bool
    block_q: int
    block_k: int


def blocked(
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
    block_q: int = 128,
    block_k: int = 128,
) -> jax.Array:
    """What `base` gives, in memory linear in ``T`` and ``S``, without work on blocks that nothing sees.

    ``block_q`` queries meet ``block_k`` keys at a time (fewer where the array is shorter; lengths needn't be multiples).
    The largest temporary is one block of float32 logits, ``B × N × block_q × block_k``. Reverse-mode differentiable
    once; no forward mode. Under ``jax.checkpoint`` a policy that saves the name "attention_residuals" (the output and each
    row's log-sum-exp) spares the backward pass another forward pass.

    Raises:
        ValueError: shapes that don't fit, or an option out of its range.
    """
    cut = cut_in_blocks(
        query,
        key,
        value,
        scale=scale,
        causal=causal,
        window=window,
        logit_cap=logit_cap,
        query_positions=query_positions,
        key_positions=key_positions,
        query_segments=query_segments,
        key_segments=key_segments,
        block_q=block_q,
        block_k=block_k,
    )
    return joined_rows(_attention(*cut), query)


class Cut(NamedTuple):
    """A call's arguments with heads in groups, ``q`` ``[b, t, k, g, h]``, and lengths whole numbers of blocks."""

    spec: Spec
    q: jax.Array
    k: jax.Array
    v: jax.Array
    queries: Rows
    keys: Rows


def cut_in_blocks(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    /,
    *,
    scale: float,
    causal: bool,
    window: int | None,
    logit_cap: float | None,
    query_positions: jax.Array | None,
    key_positions: jax.Array | None,
    query_segments: jax.Array | None,
    key_segments: jax.Array | None,
    block_q: int,
    block_k: int,
) -> Cut:
    """Check the arguments and bring them into the form that `forward` and `backward` take."""
    problem = check(
        query,
        key,
        value,
        causal=causal,
        window=window,
        logit_cap=logit_cap,
        query_positions=query_positions,
        key_positions=key_positions,
        query_segments=query_segments,
        key_segments=key_segments,
    )
    for name, block in (("block_q", block_q), ("block_k", block_k)):
        if block < 1:
            raise ValueError(f"attention.blocked wants {name} of at least 1; got {block}")
    query_length, key_length = query.shape[1], key.shape[1]
    block_q, block_k = min(block_q, query_length), min(block_k, key_length)
    pad_q, pad_k = -query_length % block_q, -key_length % block_k
    return Cut(
        Spec(scale, logit_cap, problem.rule, problem.masks or pad_k > 0, block_q, block_k),
        cut_rows(query, num_kv_heads=key.shape[2], block=block_q),
        _pad_rows(key, pad_k),
        _pad_rows(value, pad_k),
        # Padded queries repeat the last row's place, so they widen no block's reach; padded keys are empty slots.
        jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, pad_q)), mode="edge"), problem.queries),
        jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, pad_k)), constant_values=-1), problem.keys),
    )


def cut_rows(x: jax.Array, *, num_kv_heads: int, block: int) -> jax.Array:
    """``[b, t, n, h]`` of queries, or of what there is one of for each: heads in groups, and padded to whole blocks."""
    grouped = x.reshape(*x.shape[:2], num_kv_heads, x.shape[2] // num_kv_heads, x.shape[3])
    return _pad_rows(grouped, -x.shape[1] % block)


def joined_rows(x: jax.Array, query: jax.Array) -> jax.Array:
    """The reverse of `cut_rows`, to the number of rows and heads of ``query``."""
    return x[:, : query.shape[1]].reshape(*query.shape[:3], x.shape[-1])


def _pad_rows(x: jax.Array, amount: int) -> jax.Array:
    return jnp.pad(x, ((0, 0), (0, amount)) + ((0, 0),) * (x.ndim - 2)) if amount else x


class _Reach(NamedTuple):
    """Loop bounds, first and one past the last: of key blocks a query block, and of query blocks a key block."""

    keys: tuple[jax.Array, jax.Array]
    queries: tuple[jax.Array, jax.Array]


def _reach(spec: Spec, queries: Rows, keys: Rows) -> _Reach:
    """Bounds of the blocks that may see each other, judged by each block's range of positions and of segments.

    A bound may be too wide (a block with several documents), never too narrow: the mask inside a block decides.
    """
    num_q, num_k = queries.positions.shape[1] // spec.block_q, keys.positions.shape[1] // spec.block_k
    valid = (keys.positions >= 0).reshape(-1, num_k, spec.block_k)

    def query_range(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = x.reshape(-1, num_q, spec.block_q)
        return x.min(axis=-1)[:, :, None], x.max(axis=-1)[:, :, None]

    def key_range(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = x.reshape(-1, num_k, spec.block_k)
        least = x.min(axis=-1, where=valid, initial=_INT32_MAX)
        return least[:, None, :], x.max(axis=-1, where=valid, initial=-_INT32_MAX)[:, None, :]

    (q_first, q_last), (k_first, k_last) = query_range(queries.positions), key_range(keys.positions)
    meets = valid.any(axis=-1)[:, None, :]
    if spec.rule.causal:
        meets &= k_first <= q_last
    if spec.rule.window is not None:
        meets &= k_last > q_first - spec.rule.window
    if queries.segments is not None and keys.segments is not None:
        (q_low, q_high), (k_low, k_high) = query_range(queries.segments), key_range(keys.segments)
        meets &= (k_low <= q_high) & (k_high >= q_low)
    meets = jnp.broadcast_to(meets.any(axis=0), (num_q, num_k))

    def bounds(meets: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = jnp.argmax(meets, axis=1)
        last = meets.shape[1] - jnp.argmax(meets[:, ::-1], axis=1)
        return first, jnp.where(meets.any(axis=1), last, first)

    return _Reach(keys=bounds(meets), queries=bounds(meets.T))


def _block(x: jax.Array, index: jax.Array, size: int) -> jax.Array:
    """Rows ``index * size …`` of ``[b, rows, …]``."""
    return lax.dynamic_slice_in_dim(x, index * size, size, axis=1)


def _block_of(rows: Rows, index: jax.Array, size: int) -> Rows:
    segments = None if rows.segments is None else _block(rows.segments, index, size)
    return Rows(_block(rows.positions, index, size), segments)


def _logits(spec: Spec, raw: jax.Array, seen: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Scaled, capped and masked logits, and those before the mask."""
    logits = raw * spec.scale
    if spec.logit_cap is not None:
        logits = spec.logit_cap * jnp.tanh(logits / spec.logit_cap)
    return (logits if seen is None else jnp.where(seen, logits, MASKED)), logits


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(spec: Spec, q: jax.Array, k: jax.Array, v: jax.Array, queries: Rows, keys: Rows) -> jax.Array:
    """``[b, t, k, g, h] × [b, s, k, h] × [b, s, k, h] → [b, t, k, g, h]``, lengths whole numbers of blocks."""
    return forward(Cut(spec, q, k, v, queries, keys), dtype=q.dtype)[0]


def forward(cut: Cut, *, dtype: jax.typing.DTypeLike) -> tuple[jax.Array, jax.Array]:
    """The output in ``dtype``, and the log-sum-exp of every row, ``[b, k, g, t]`` float32: `_FLOOR` if it sees nothing."""
    spec, q, k, v, queries, keys = cut
    batch, length, num_kv_heads, group, _ = q.shape
    rows = (batch, num_kv_heads, group, spec.block_q)
    first, last = _reach(spec, queries, keys).keys

    def query_block(i: jax.Array, results: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        q_i = _block(q, i, spec.block_q).transpose(0, 2, 3, 1, 4)
        queries_i = _block_of(queries, i, spec.block_q)

        def key_block(
            j: jax.Array, running: tuple[jax.Array, jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            maximum, total, out = running
            k_j, v_j = (_block(x, j, spec.block_k).transpose(0, 2, 1, 3) for x in (k, v))
            raw = jnp.einsum("bkgth,bksh->bkgts", q_i, k_j, preferred_element_type=jnp.float32)
            seen = None
            if spec.masks:
                seen = spec.rule.sees(queries_i, _block_of(keys, j, spec.block_k))[:, None, None]
            logits, _ = _logits(spec, raw, seen)
            new_maximum = jnp.maximum(maximum, logits.max(axis=-1))
            weights = jnp.exp(logits - new_maximum[..., None])
            shrink = jnp.exp(maximum - new_maximum)
            added = jnp.einsum("bkgts,bksh->bkgth", weights.astype(v.dtype), v_j, preferred_element_type=jnp.float32)
            return new_maximum, total * shrink + weights.sum(axis=-1), out * shrink[..., None] + added

        empty = (jnp.full(rows, _FLOOR), jnp.zeros(rows), jnp.zeros((*rows, v.shape[-1])))
        maximum, total, out = lax.fori_loop(first[i], last[i], key_block, empty)
        total = jnp.where(total == 0.0, 1.0, total)
        out = (out / total[..., None]).astype(dtype).transpose(0, 3, 1, 2, 4)
        return (
            lax.dynamic_update_slice_in_dim(results[0], out, i * spec.block_q, axis=1),
            lax.dynamic_update_slice_in_dim(results[1], maximum + jnp.log(total), i * spec.block_q, axis=3),
        )

    results = (jnp.zeros((*q.shape[:-1], v.shape[-1]), dtype), jnp.zeros((*rows[:-1], length), jnp.float32))
    out, log_sum = lax.fori_loop(0, length // spec.block_q, query_block, results)
    return out, log_sum


_Residuals = tuple[jax.Array, jax.Array, jax.Array, Rows, Rows, jax.Array, jax.Array]


def _attention_forward(
    spec: Spec, q: jax.Array, k: jax.Array, v: jax.Array, queries: Rows, keys: Rows
) -> tuple[jax.Array, _Residuals]:
    # Named, so that a rematerialisation policy can keep the two and need not run this pass again.
    out, log_sum = checkpoint_name(forward(Cut(spec, q, k, v, queries, keys), dtype=q.dtype), "attention_residuals")
    return out, (q, k, v, queries, keys, out, log_sum)


def _attention_backward(
    spec: Spec, residuals: _Residuals, d_out: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, None, None]:
    q, k, v, queries, keys, out, log_sum = residuals
    dtypes = (q.dtype, k.dtype, v.dtype)
    return *backward(Cut(spec, q, k, v, queries, keys), out, log_sum, d_out, dtypes=dtypes), None, None


def backward(
    cut: Cut,
    out: jax.Array,
    log_sum: jax.Array,
    d_out: jax.Array,
    *,
    dtypes: tuple[jax.typing.DTypeLike, jax.typing.DTypeLike, jax.typing.DTypeLike],
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """FlashAttention's backward pass: ``dS = P ∘ (dO Vᵀ − rowsum(dO ∘ O))`` with ``P`` recomputed a block at a time.

    ``out`` and ``log_sum`` may be those of a softmax over more keys than these: ``P`` is then these keys' part of it.
    """
    spec, q, k, v, queries, keys = cut
    d_query, d_key, d_value = dtypes
    first, last = _reach(spec, queries, keys).queries
    # [b, k, g, t], like log_sum
    inner = jnp.einsum("btkgh,btkgh->bkgt", d_out, out, preferred_element_type=jnp.float32)

    def key_block(
        j: jax.Array, gradients: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        k_j, v_j = (_block(x, j, spec.block_k).transpose(0, 2, 1, 3) for x in (k, v))
        keys_j = _block_of(keys, j, spec.block_k)

        def query_block(
            i: jax.Array, sums: tuple[jax.Array, jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            dq, dk_j, dv_j = sums
            q_i, d_out_i = (_block(x, i, spec.block_q).transpose(0, 2, 3, 1, 4) for x in (q, d_out))
            log_sum_i, inner_i = (
                lax.dynamic_slice_in_dim(x, i * spec.block_q, spec.block_q, axis=3)[..., None, :]
                for x in (log_sum, inner)
            )
            raw = jnp.einsum("bksh,bkgth->bkgst", k_j, q_i, preferred_element_type=jnp.float32)
            seen = None
            if spec.masks:
                seen = spec.rule.sees(_block_of(queries, i, spec.block_q), keys_j).swapaxes(1, 2)[:, None, None]
            logits, capped = _logits(spec, raw, seen)
            weights = jnp.exp(logits - log_sum_i)
            d_weights = jnp.einsum("bksh,bkgth->bkgst", v_j, d_out_i, preferred_element_type=jnp.float32)
            d_logits = weights * (d_weights - inner_i)
            if spec.logit_cap is not None:
                d_logits *= 1.0 - jnp.square(capped / spec.logit_cap)
            weights, d_logits = weights.astype(q.dtype), d_logits.astype(q.dtype)
            dv_j += jnp.einsum("bkgst,bkgth->bksh", weights, d_out_i, preferred_element_type=jnp.float32)
            dk_j += jnp.einsum("bkgst,bkgth->bksh", d_logits, q_i, preferred_element_type=jnp.float32)
            dq_i = jnp.einsum("bkgst,bksh->bkgth", d_logits, k_j, preferred_element_type=jnp.float32)
            dq_i = dq_i.transpose(0, 3, 1, 2, 4) + _block(dq, i, spec.block_q)
            return lax.dynamic_update_slice_in_dim(dq, dq_i, i * spec.block_q, axis=1), dk_j, dv_j

        dq, dk, dv = gradients
        empty = (dq, jnp.zeros(k_j.shape, jnp.float32), jnp.zeros(v_j.shape, jnp.float32))
        dq, dk_j, dv_j = lax.fori_loop(first[j], last[j], query_block, empty)
        dk_j, dv_j = (dk_j * spec.scale).astype(d_key), dv_j.astype(d_value)
        return (
            dq,
            lax.dynamic_update_slice_in_dim(dk, dk_j.transpose(0, 2, 1, 3), j * spec.block_k, axis=1),
            lax.dynamic_update_slice_in_dim(dv, dv_j.transpose(0, 2, 1, 3), j * spec.block_k, axis=1),
        )

    empty = (jnp.zeros(q.shape, jnp.float32), jnp.zeros(k.shape, d_key), jnp.zeros(v.shape, d_value))
    dq, dk, dv = lax.fori_loop(0, k.shape[1] // spec.block_k, key_block, empty)
    return (dq * spec.scale).astype(d_query), dk, dv


_attention.defvjp(_attention_forward, _attention_backward)
