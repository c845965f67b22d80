"""The conformance kits of ``AttentionFn`` and its options: against a loop over queries and keys in numpy's float64."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias, TypedDict, cast

import jax
import jax.numpy as jnp
import numpy as np

from ax_layers.protocols import AttentionBias, AttentionFn, AttentionMask, SupportsAttentionOptions

Array: TypeAlias = np.ndarray
Case: TypeAlias = "tuple[str, tuple[int, int], Options]"
"""Its name, how many heads of queries and of keys, and the arguments."""


class Options(TypedDict, total=False):
    """The arguments of an ``AttentionFn`` besides the three arrays, and what ``SupportsAttentionOptions`` adds."""

    scale: float
    causal: bool
    window: int | None
    logit_cap: float | None
    query_positions: Array | None
    key_positions: Array | None
    query_segments: Array | None
    key_segments: Array | None
    mask: AttentionMask
    bias: AttentionBias
    sinks: Array


def reference_attention(query: Array, key: Array, value: Array, options: Options, /) -> Array:
    """What ``AttentionFn`` and its options mean, query by query, in float64."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    num_batch, length, num_heads, _ = query.shape
    key_length, num_kv_heads = key.shape[1:3]
    out = np.zeros(query.shape, np.float64)
    for b in range(num_batch):
        for t in range(length):
            seen = [s for s in range(key_length) if _sees(options, b, t, s)]
            if not seen:
                continue
            for n in range(num_heads):
                k = n // (num_heads // num_kv_heads)
                logits = key[b, seen, k] @ query[b, t, n] * options["scale"]
                cap = options.get("logit_cap")
                if cap is not None:
                    logits = cap * np.tanh(logits / cap)
                if "bias" in options:
                    logits = logits + _bias(options["bias"], num_heads, *_places(options, b, t, seen))[n]
                weights = np.exp(logits - logits.max())
                sink = np.exp(options["sinks"][n] - logits.max()) if "sinks" in options else 0.0
                out[b, t, n] = (weights / (weights.sum() + sink)) @ value[b, seen, k]
    return out


def _bias(bias: AttentionBias, num_heads: int, query_at: int, keys_at: list[int]) -> Array:
    rows = jnp.full((1, 1, 1), query_at, jnp.int32), jnp.asarray(keys_at, jnp.int32)[None, None]
    return np.asarray(bias(*rows, num_heads=num_heads), np.float64)[0, :, 0]


def _places(options: Options, b: int, t: int, keys: list[int]) -> tuple[int, list[int]]:
    query_positions, key_positions = options.get("query_positions"), options.get("key_positions")
    query_at = t if query_positions is None else int(query_positions[b, t])
    return query_at, keys if key_positions is None else [int(key_positions[b, s]) for s in keys]


def _sees(options: Options, b: int, t: int, s: int) -> bool:
    query_at, (key_at,) = _places(options, b, t, [s])
    window = options.get("window")
    segments = options.get("query_segments"), options.get("key_segments")
    one_segment = segments[0] is None or segments[1] is None or segments[0][b, t] == segments[1][b, s]
    near = window is None or query_at - key_at < window
    masked = "mask" in options and not bool(
        options["mask"](jnp.full((1, 1, 1), query_at, jnp.int32), jnp.full((1, 1, 1), key_at, jnp.int32))
    )
    return key_at >= 0 and (not options["causal"] or key_at <= query_at) and near and one_segment and not masked


_IN_BFLOAT16 = ("multi-head", "grouped heads", "all at once")


def check_attention_fn(
    fn: AttentionFn,
    /,
    *,
    length: int = 16,
    head_dim: int = 8,
    may_refuse: Collection[str] = (),
    gradients: bool = True,
) -> None:
    """Put ``fn`` through the contract of ``AttentionFn``.

    Args:
        fn: The implementation.
        length: The number of queries; as many keys, or twice as many where a cache is played.
        head_dim: The head dim.
        may_refuse: The options that ``fn`` may lack, such as "window"; it has to raise ValueError naming one of those
            that it was given.
        gradients: Whether to check gradients too.
    """
    _check_cases(fn, attention_cases(length, head_dim), length, head_dim, may_refuse, gradients)


def check_attention_options(
    fn: SupportsAttentionOptions, /, *, length: int = 16, head_dim: int = 8, gradients: bool = True
) -> None:
    """Put ``fn`` through what ``SupportsAttentionOptions`` adds to ``AttentionFn``, each alone and all together."""
    _check_cases(fn, _option_cases(length, head_dim), length, head_dim, (), gradients)


def _check_cases(
    fn: AttentionFn,
    cases: Sequence[Case],
    length: int,
    head_dim: int,
    may_refuse: Collection[str],
    gradients: bool,
) -> None:
    for seed, (name, heads, options) in enumerate(cases):
        rng = np.random.default_rng(seed)
        key_positions = options.get("key_positions")
        key_length = length if key_positions is None else key_positions.shape[1]
        query = rng.standard_normal((2, length, heads[0], head_dim))
        key = rng.standard_normal((2, key_length, heads[1], head_dim))
        value = rng.standard_normal((2, key_length, heads[1], head_dim))
        for dtype in ("float32", "bfloat16") if name in _IN_BFLOAT16 else ("float32",):
            _check_case(f"{name}, {dtype}", fn, (query, key, value), options, dtype, may_refuse, gradients)


def attention_cases(length: int, head_dim: int) -> list[Case]:
    rng = np.random.default_rng(0)
    base = Options(scale=head_dim**-0.5, causal=True)
    order = np.tile(np.arange(length, dtype=np.int32), (2, 1))
    segments = np.sort(rng.integers(0, 3, (2, length))).astype(np.int32)
    restarted = np.concatenate([order[:, : length // 2], order[:, : length - length // 2]], axis=1)
    halves = (order >= length // 2).astype(np.int32)
    # A cache of twice the length: sequence 0 has 3 earlier positions, sequence 1 has 5; slots in any order, the rest empty.
    slots = np.full((2, 2 * length), -1, np.int32)
    now = np.stack([3 + order[0], 5 + order[1]])
    for b, filled in enumerate((3 + length, 5 + length)):
        slots[b, rng.permutation(2 * length)[:filled]] = np.arange(filled)
    padded = order.copy()
    padded[0, length // 2 :] = -1
    return [
        ("multi-head", (4, 4), base),
        ("grouped heads", (4, 2), base),
        ("one key head", (4, 1), base),
        ("another scale", (2, 2), Options(scale=0.5, causal=True)),
        ("not causal", (4, 2), Options(scale=base["scale"], causal=False)),
        ("window", (4, 2), Options(**base, window=3)),
        ("window, not causal", (2, 2), Options(scale=base["scale"], causal=False, window=3)),
        ("logit_cap", (4, 2), Options(**base, logit_cap=1.5)),
        ("logit_cap, not causal", (2, 2), Options(scale=base["scale"], causal=False, logit_cap=1.5)),
        ("segments", (4, 2), Options(**base, query_segments=segments, key_segments=segments)),
        (
            "segments and positions",
            (2, 2),
            Options(
                **base,
                query_segments=halves,
                key_segments=halves,
                query_positions=restarted,
                key_positions=restarted,
            ),
        ),
        ("cache", (4, 2), Options(**base, query_positions=now, key_positions=slots)),
        ("cache, window", (2, 2), Options(**base, query_positions=now, key_positions=slots, window=4)),
        ("padding", (2, 2), Options(**base, query_positions=padded, key_positions=padded)),
        (
            "queries that see nothing",
            (4, 2),
            Options(**base, query_segments=segments, key_segments=np.where(segments == segments[:, -1:], 7, segments)),
        ),
        ("all at once", (4, 2), Options(**base, query_positions=now, key_positions=slots, window=5, logit_cap=1.5)),
    ]


def _option_cases(length: int, head_dim: int) -> list[Case]:
    base = Options(scale=head_dim**-0.5, causal=True)
    sinks = np.random.default_rng(1).standard_normal(4).astype(np.float32)
    cached = next(options for name, _, options in attention_cases(length, head_dim) if name == "cache")

    def in_chunks(query_positions: jax.Array, key_positions: jax.Array, /) -> jax.Array:
        return query_positions // 3 == key_positions // 3

    def by_distance(query_positions: jax.Array, key_positions: jax.Array, /, *, num_heads: int) -> jax.Array:
        slopes = jnp.arange(num_heads, dtype=jnp.float32)[None, :, None, None] / num_heads
        return slopes * (key_positions - query_positions).astype(jnp.float32)[:, None]

    return [
        ("mask", (4, 2), Options(**base, mask=in_chunks)),
        ("mask, not causal", (4, 4), Options(scale=base["scale"], causal=False, mask=in_chunks)),
        ("mask, cache", (4, 2), Options(**cached, mask=in_chunks)),
        ("bias", (4, 4), Options(**base, bias=by_distance)),
        ("bias after the cap, grouped heads", (4, 2), Options(**base, bias=by_distance, logit_cap=1.5)),
        ("sinks", (4, 2), Options(**base, sinks=sinks)),
        ("all options", (4, 2), Options(**cached, mask=in_chunks, bias=by_distance, sinks=sinks, window=5)),
    ]


def _check_case(
    name: str,
    fn: AttentionFn,
    arrays: tuple[Array, Array, Array],
    options: Options,
    dtype: str,
    may_refuse: Collection[str],
    gradients: bool,
) -> None:
    passed = cast("Any", {name: jnp.asarray(x) if isinstance(x, np.ndarray) else x for name, x in options.items()})
    cotangent = np.random.default_rng(101).standard_normal(arrays[0].shape)

    def call(query: jax.Array, key: jax.Array, value: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        def forward(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
            return fn(query, key, value, **passed)

        if not gradients:
            return forward(query, key, value), ()
        out, pull_back = jax.vjp(forward, query, key, value)
        return out, pull_back(jnp.asarray(cotangent, out.dtype))

    given = tuple(jnp.asarray(x, dtype) for x in arrays)
    query, key, value = (np.asarray(x.astype(jnp.float32), np.float64) for x in given)
    try:
        out, grads = jax.jit(call)(*given)
    except ValueError as refusal:
        refused = [option for option in may_refuse if options.get(option) is not None and option in str(refusal)]
        if not refused:
            raise AssertionError(
                f"attention refused the case {name!r}, without naming an option it may lack"
            ) from refusal
        return
    assert out.shape == given[0].shape, f"{name}: the output has shape {out.shape}, the query {given[0].shape}"
    assert out.dtype == given[0].dtype, f"{name}: the output has type {out.dtype}, the query {given[0].dtype}"
    wanted = reference_attention(query, key, value, options)
    tolerance = 2e-5 if dtype == "float32" else 3e-2
    np.testing.assert_allclose(
        np.asarray(out.astype(jnp.float32)), wanted, atol=tolerance, rtol=tolerance, err_msg=f"attention, case {name!r}"
    )
    tolerance = 2e-3 if dtype == "float32" else 1e-1
    for i, (argument, grad) in enumerate(zip(("query", "key", "value"), grads, strict=False)):
        assert grad.dtype == given[i].dtype, f"{name}: the gradient for the {argument} has type {grad.dtype}"
        slope = np.asarray(grad.astype(jnp.float32), np.float64)
        assert np.isfinite(slope).all(), f"attention, case {name!r}: the gradient for the {argument} isn't finite"
        # Half random, half along the gradient, lest a bfloat16 slope drown in rounding.
        direction = np.random.default_rng(102).standard_normal(slope.shape) + slope
        ends = []
        for step in (1e-5, -1e-5):
            moved = [x + step * direction if j == i else x for j, x in enumerate((query, key, value))]
            ends.append((reference_attention(moved[0], moved[1], moved[2], options) * cotangent).sum())
        np.testing.assert_allclose(
            (slope * direction).sum(),
            (ends[0] - ends[1]) / 2e-5,
            atol=tolerance,
            rtol=tolerance,
            err_msg=f"attention, case {name!r}: gradient for the {argument}",
        )
