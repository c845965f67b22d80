from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ax_kernels import grouped_matmul
from ax_kernels.testing import GroupedMatmulSuite
from hypothesis import given, settings
from hypothesis import strategies as st


class TestBase(GroupedMatmulSuite):
    grouped_matmul = staticmethod(grouped_matmul.base)


class TestBatched(GroupedMatmulSuite):
    """Blocks that hold most groups whole."""

    grouped_matmul = staticmethod(grouped_matmul.batched)


class TestBatchedSmall(GroupedMatmulSuite):
    """Blocks that no group is a multiple of."""

    grouped_matmul = staticmethod(partial(grouped_matmul.batched, block=6))


class TestRaggedDot(GroupedMatmulSuite):
    """That of JAX means the same, but for its errors."""

    grouped_matmul = staticmethod(jax.lax.ragged_dot)

    def test_refuses_shapes_that_do_not_fit(self) -> None:
        with pytest.raises(TypeError, match="contracting"):
            super().test_refuses_shapes_that_do_not_fit()


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 5), st.integers(1, 8))
def test_any_sizes_in_any_blocks(sizes: list[int], num_rest: int, block: int) -> None:
    num_rows = sum(sizes) + num_rest
    rows = jnp.arange(1.0, num_rows + 1)[:, None]
    weights = jnp.arange(1.0, len(sizes) + 1)[:, None, None]
    got = grouped_matmul.batched(rows, weights, jnp.asarray(sizes, jnp.int32), block=block)
    groups = np.repeat(np.arange(len(sizes) + 1), [*sizes, num_rest])
    wanted = np.arange(1, num_rows + 1) * np.where(groups < len(sizes), groups + 1, 0)
    np.testing.assert_array_equal(got[:, 0], wanted)


def test_batched_holds_few_copies_of_the_rows() -> None:
    num_rows, num_groups, dim, out_dim = 4096, 64, 64, 32

    def temporary_bytes(call: object) -> int:
        assert callable(call)
        gradient = jax.value_and_grad(lambda *arrays: jnp.sum(call(*arrays)), argnums=(0, 1))
        memory = (
            jax.jit(gradient)
            .lower(
                jax.ShapeDtypeStruct((num_rows, dim), jnp.float32),
                jax.ShapeDtypeStruct((num_groups, dim, out_dim), jnp.float32),
                jax.ShapeDtypeStruct((num_groups,), jnp.int32),
            )
            .compile()
            .memory_analysis()
        )
        assert memory is not None
        return int(memory.temp_size_in_bytes)

    a_copy_a_group = num_groups * num_rows * dim * 4
    assert temporary_bytes(jax.lax.ragged_dot) >= a_copy_a_group
    assert temporary_bytes(partial(grouped_matmul.batched, block=32)) < a_copy_a_group / 8


def test_errors_name_what_is_wrong() -> None:
    rows, weights, sizes = jnp.zeros((4, 8)), jnp.zeros((2, 8, 3)), jnp.zeros(2, jnp.int32)
    with pytest.raises(ValueError, match="integer group_sizes; got float32"):
        grouped_matmul.batched(rows, weights, sizes.astype(jnp.float32))
    with pytest.raises(ValueError, match="one type; got bfloat16 and float32"):
        grouped_matmul.base(rows.astype(jnp.bfloat16), weights, sizes)
    with pytest.raises(ValueError, match=r"group_sizes \[E\].*\(3,\)"):
        grouped_matmul.base(rows, weights, jnp.zeros(3, jnp.int32))
    with pytest.raises(ValueError, match="block of at least 1; got 0"):
        grouped_matmul.batched(rows, weights, sizes, block=0)
