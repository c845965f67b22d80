from functools import partial

import jax
import jax.numpy as jnp
import pytest
from ax_kernels import cross_entropy
from ax_kernels.testing import CrossEntropySuite


class TestBase(CrossEntropySuite):
    cross_entropy = staticmethod(cross_entropy.base)


class TestChunked(CrossEntropySuite):
    cross_entropy = staticmethod(cross_entropy.chunked)
    cases = tuple(case for case in CrossEntropySuite.cases if case.vocab_size > 1_500)


class TestChunkedSmall(CrossEntropySuite):
    """Chunks that divide few of the vocabularies."""

    cross_entropy = staticmethod(partial(cross_entropy.chunked, chunk_size=96))
    cases = tuple(case for case in CrossEntropySuite.cases if case.vocab_size < 10_000)


def test_chunked_never_holds_all_logits() -> None:
    num_rows, dim, vocab_size = 512, 16, 32_000
    hidden = jax.ShapeDtypeStruct((num_rows, dim), jnp.float32)
    weight = jax.ShapeDtypeStruct((vocab_size, dim), jnp.float32)
    targets = jax.ShapeDtypeStruct((num_rows,), jnp.int32)

    def temporary_bytes(call: object) -> int:
        assert callable(call)
        gradient = jax.value_and_grad(lambda h, w, t: jnp.sum(call(h, w, t)[0]), argnums=(0, 1))
        memory = jax.jit(gradient).lower(hidden, weight, targets).compile().memory_analysis()
        assert memory is not None
        return int(memory.temp_size_in_bytes)

    logits = num_rows * vocab_size * 4
    assert temporary_bytes(cross_entropy.base) >= logits
    assert temporary_bytes(partial(cross_entropy.chunked, chunk_size=1024)) < logits / 8


@pytest.mark.parametrize("call", [cross_entropy.base, cross_entropy.chunked])
def test_errors_name_what_is_wrong(call: object) -> None:
    assert callable(call)
    hidden, weight, targets = jnp.zeros((4, 8)), jnp.zeros((10, 8)), jnp.zeros(4, jnp.int32)
    with pytest.raises(ValueError, match="integer targets; got float32"):
        call(hidden, weight, targets.astype(jnp.float32))
    with pytest.raises(ValueError, match=r"targets \[M\].*\(5,\)"):
        call(hidden, weight, jnp.zeros(5, jnp.int32))
    with pytest.raises(ValueError, match=r"logit_cap must be positive.*-1\.0"):
        call(hidden, weight, targets, logit_cap=-1.0)


def test_chunked_refuses_an_empty_chunk() -> None:
    with pytest.raises(ValueError, match="chunk_size of at least 1; got 0"):
        cross_entropy.chunked(jnp.zeros((4, 8)), jnp.zeros((10, 8)), jnp.zeros(4, jnp.int32), chunk_size=0)
