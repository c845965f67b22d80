"""The corpus of cross-entropy calls: vocabularies of real models, rows and widths cut so that a CPU can check them."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ._comparison import normal


@dataclass(frozen=True, kw_only=True)
class CrossEntropyCase:
    """One call: ``num_rows`` rows of ``dim`` against a vocabulary of ``vocab_size``; logits spread by about ``spread``."""

    name: str
    num_rows: int
    dim: int
    vocab_size: int
    spread: float = 1.0
    logit_cap: float | None = None
    dtype: str = "float32"

    def arrays(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Hidden, weight and targets, the same at every call; first and last entry are among the targets."""
        rng = np.random.default_rng(len(self.name))
        hidden = normal(rng, (self.num_rows, self.dim), self.dtype)
        weight = normal(rng, (self.vocab_size, self.dim), "float32") * (self.spread * self.dim**-0.5)
        targets = rng.integers(self.vocab_size, size=self.num_rows)
        targets[0], targets[-1] = 0, self.vocab_size - 1
        return hidden, weight.astype(self.dtype), jnp.asarray(targets, jnp.int32)


CROSS_ENTROPY_CASES: tuple[CrossEntropyCase, ...] = (
    CrossEntropyCase(name="tiny", num_rows=256, dim=256, vocab_size=256),
    CrossEntropyCase(name="llama2", num_rows=24, dim=64, vocab_size=32_000),
    CrossEntropyCase(name="smollm2_135m", num_rows=8, dim=64, vocab_size=49_152),
    CrossEntropyCase(name="qwen3", num_rows=4, dim=32, vocab_size=151_936),
    CrossEntropyCase(name="odd", num_rows=37, dim=19, vocab_size=1_009),
    CrossEntropyCase(name="one_row", num_rows=1, dim=8, vocab_size=3),
    CrossEntropyCase(name="one_entry", num_rows=5, dim=8, vocab_size=1),
    CrossEntropyCase(name="capped", num_rows=33, dim=32, vocab_size=500, spread=3.0, logit_cap=2.0),
    CrossEntropyCase(name="large_logits", num_rows=9, dim=32, vocab_size=300, spread=1e4),
    CrossEntropyCase(name="bfloat16", num_rows=40, dim=64, vocab_size=2_000, dtype="bfloat16"),
    CrossEntropyCase(name="capped_bfloat16", num_rows=40, dim=64, vocab_size=2_000, logit_cap=2.0, dtype="bfloat16"),
)
