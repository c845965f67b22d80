"""The corpus of grouped matmuls: experts of real models cut so that a CPU can check them, and loads of every kind."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ._comparison import normal


@dataclass(frozen=True, kw_only=True)
class GroupedMatmulCase:
    """One call: groups of these sizes and ``num_rest`` rows after them, each row ``dim`` wide, to ``out_dim``."""

    name: str
    sizes: tuple[int, ...]
    dim: int
    out_dim: int
    num_rest: int = 0
    dtype: str = "float32"

    def arrays(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Rows, weights and sizes, the same at every call."""
        rng = np.random.default_rng(len(self.name))
        rows = normal(rng, (sum(self.sizes) + self.num_rest, self.dim), self.dtype)
        weights = normal(rng, (len(self.sizes), self.dim, self.out_dim), "float32") * self.dim**-0.5
        return rows, weights.astype(self.dtype), jnp.asarray(self.sizes, jnp.int32)


GROUPED_MATMUL_CASES: tuple[GroupedMatmulCase, ...] = (
    GroupedMatmulCase(name="mixtral", sizes=(40, 12, 55, 33, 61, 8, 27, 20), dim=64, out_dim=96),
    GroupedMatmulCase(name="qwen3_moe", sizes=tuple(i * 7 % 11 for i in range(128)), dim=32, out_dim=24),
    GroupedMatmulCase(name="even", sizes=(32, 32, 32, 32), dim=16, out_dim=16),
    GroupedMatmulCase(name="empty_first_and_last", sizes=(0, 5, 0, 0, 17, 0), dim=8, out_dim=4),
    GroupedMatmulCase(name="all_in_one", sizes=(0, 0, 70, 0), dim=8, out_dim=8),
    GroupedMatmulCase(name="rows_in_no_group", sizes=(3, 0, 9), dim=8, out_dim=8, num_rest=21),
    GroupedMatmulCase(name="all_empty", sizes=(0, 0), dim=8, out_dim=8, num_rest=6),
    GroupedMatmulCase(name="one_row", sizes=(1,), dim=3, out_dim=5),
    GroupedMatmulCase(name="bfloat16", sizes=(19, 64, 0, 45), dim=64, out_dim=32, num_rest=7, dtype="bfloat16"),
)
