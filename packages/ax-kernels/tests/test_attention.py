from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_kernels import attention
from ax_kernels.testing import AttentionSuite, attention_case
from hypothesis import given, settings
from hypothesis import strategies as st

STATIC = ("scale", "causal", "window", "block_q", "block_k")


class TestBase(AttentionSuite):
    attention = staticmethod(attention.base)


class TestBlocked(AttentionSuite):
    """Blocks as they come: most cases are a single one, so only the longer are worth the time."""

    attention = staticmethod(attention.blocked)
    cases = tuple(map(attention_case, ("tiny", "smollm2_135m", "length_1", "everything", "everything_bfloat16")))


class TestBlockedSmall(AttentionSuite):
    """Blocks so small that every case has several, unequal, and most lengths are no multiple of them."""

    attention = staticmethod(partial(attention.blocked, block_q=16, block_k=24))


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    lengths=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    blocks=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 45),
    segments=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_blocked_equals_base_at_any_length_and_blocks(
    lengths: tuple[int, int], blocks: tuple[int, int], causal: bool, window: int | None, segments: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    (query_length, key_length), (block_q, block_k) = lengths, blocks
    query, key, value = (
        jnp.asarray(rng.standard_normal((2, length, heads, 8), np.float32))
        for length, heads in ((query_length, 2), (key_length, 1), (key_length, 1))
    )

    def integers(low: int, high: int, length: int) -> jax.Array:
        return jnp.asarray(rng.integers(low, high, (2, length)), jnp.int32)

    rule = partial(
        attention.blocked,
        scale=0.5,
        causal=causal,
        window=window,
        query_positions=integers(0, 40, query_length),
        key_positions=integers(-3, 40, key_length),
        query_segments=integers(0, 2, query_length) if segments else None,
        key_segments=integers(0, 2, key_length) if segments else None,
    )
    got = jax.jit(partial(rule, block_q=block_q, block_k=block_k))(query, key, value)
    np.testing.assert_allclose(got, jax.jit(partial(attention.base, **rule.keywords))(query, key, value), atol=2e-6)


def test_blocked_skips_blocks_that_no_query_sees() -> None:
    """NaN where nothing may look stays out of the result: those blocks are never read."""
    case = attention_case("tiny")
    query, key, value = case.arrays()
    blocked = partial(
        jax.jit(attention.blocked, static_argnames=STATIC), scale=0.1, causal=True, block_q=64, block_k=64
    )
    poisoned = key.at[:, 128:].set(jnp.nan), value.at[:, 128:].set(jnp.nan)
    got = blocked(query[:, :128], *poisoned)
    np.testing.assert_array_equal(got, blocked(query[:, :128], key[:, :128], value[:, :128]))
    window = partial(blocked, window=64)
    poisoned = key.at[:, :64].set(jnp.nan), value.at[:, :64].set(jnp.nan)
    np.testing.assert_array_equal(window(query, *poisoned)[:, 128:], window(query, key, value)[:, 128:])


def test_blocked_skips_empty_slots_and_other_documents() -> None:
    case = attention_case("tiny")
    query, key, value = case.arrays()
    blocked = partial(
        jax.jit(attention.blocked, static_argnames=STATIC), scale=0.1, causal=True, block_q=64, block_k=64
    )
    poisoned = key.at[:, 64:].set(jnp.nan), value.at[:, 64:].set(jnp.nan)
    rows = jnp.broadcast_to(jnp.arange(256, dtype=jnp.int32), (2, 256))
    got = blocked(query[:, :1], *poisoned, query_positions=rows[:, 50:51], key_positions=jnp.where(rows < 51, rows, -1))
    wanted = attention.base(
        query[:, :1], key[:, :51], value[:, :51], scale=0.1, causal=True,
        query_positions=rows[:, 50:51], key_positions=rows[:, :51],
    )  # fmt: skip
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    got = blocked(query, *poisoned, query_segments=rows // 64, key_segments=rows // 64)
    np.testing.assert_allclose(
        got[:, :64], attention.base(query[:, :64], key[:, :64], value[:, :64], scale=0.1, causal=True), atol=1e-6
    )


def test_blocked_backward_memory_is_linear_in_length() -> None:
    def temporary_bytes(length: int) -> int:
        x = jax.ShapeDtypeStruct((1, length, 4, 16), jnp.float32)
        blocked = partial(attention.blocked, scale=0.25, causal=True)
        gradient = jax.grad(lambda q, k, v: jnp.sum(blocked(q, k, v)), argnums=(0, 1, 2))
        memory = jax.jit(gradient).lower(x, x, x).compile().memory_analysis()
        assert memory is not None
        return int(memory.temp_size_in_bytes)

    one, two = temporary_bytes(2048), temporary_bytes(4096)
    assert two < 2.2 * one, f"temporaries grew from {one} to {two} bytes as the length doubled"
    assert two < 4096 * 4096 * 4, f"{two} bytes would hold a head's logits"


@pytest.mark.parametrize(("saved", "passes"), [((), 3), (("attention_residuals",), 2)])
def test_blocked_need_not_be_run_again_where_its_residuals_are_saved(saved: tuple[str, ...], passes: int) -> None:
    q, k, v = attention_case("length_prime").arrays()
    policy = jax.checkpoint_policies.save_only_these_names(*saved)

    @partial(jax.checkpoint, policy=policy)
    def loss(q: jax.Array) -> jax.Array:
        return attention.blocked(jnp.sin(q), k, v, scale=0.25, causal=True).sum()

    # Either pass is a loop in a loop.
    assert jax.jit(jax.value_and_grad(loss)).lower(q).as_text().count("stablehlo.while") == 2 * passes


def test_blocked_in_vmap_and_scan() -> None:
    case = attention_case("length_prime")
    arrays = case.arrays()
    blocked = partial(
        jax.jit(attention.blocked, static_argnames=STATIC), scale=0.25, causal=True, block_q=16, block_k=16
    )
    stacked = tuple(jnp.stack([x, 2 * x]) for x in arrays)
    wanted = jnp.stack([blocked(*arrays), blocked(*(2 * x for x in arrays))])
    np.testing.assert_allclose(jax.vmap(blocked)(*stacked), wanted, atol=1e-6)
    _, scanned = jax.lax.scan(lambda carry, qkv: (carry, blocked(*qkv)), None, stacked)
    np.testing.assert_allclose(scanned, wanted, atol=1e-6)


@pytest.mark.parametrize("call", [attention.base, attention.blocked])
def test_errors_name_what_is_wrong(call: object) -> None:
    assert callable(call)
    x = jnp.zeros((1, 8, 2, 4))
    rows = jnp.zeros((1, 8), jnp.int32)
    for keywords, message in (
        ({"window": 0}, "window must be at least 1.*got 0"),
        ({"logit_cap": 0.0}, "logit_cap must be positive.*got 0.0"),
        ({"query_segments": rows}, "both query_segments and key_segments"),
        ({"key_positions": rows[:, :5]}, r"key_positions of shape \(1, 8\).*got \(1, 5\)"),
        ({"key_positions": rows.astype(jnp.float32)}, "integers; got .* float32"),
    ):
        with pytest.raises(ValueError, match=message):
            call(x, x, x, scale=1.0, causal=True, **keywords)
    with pytest.raises(ValueError, match=r"disagree.*key \(1, 7, 2, 4\), value \(1, 8, 2, 4\)"):
        call(x, x[:, :7], x, scale=1.0, causal=True)
    with pytest.raises(ValueError, match=r"wants query \[B, T, N, H\].*got query \(8, 2, 4\)"):
        call(x[0], x, x, scale=1.0, causal=True)


def test_blocked_refuses_an_empty_block() -> None:
    x = jnp.zeros((1, 8, 2, 4))
    with pytest.raises(ValueError, match="block_k of at least 1; got 0"):
        attention.blocked(x, x, x, scale=1.0, causal=True, block_k=0)
