"""Cross-entropy of the language model's head, loss and gradients: base and chunked, in turns. Prints a Markdown table.

python benchmarks/cross_entropy.py [repetitions]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from ax_kernels import cross_entropy
from measure import HEADER, measure, print_rows

CrossEntropy = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]

# Rows, dim, vocabulary.
SHAPES = ((2048, 192, 258), (2048, 256, 32_000), (2048, 512, 32_000))


def with_gradient(call: CrossEntropy) -> Callable[..., object]:
    def loss(hidden: jax.Array, weight: jax.Array, targets: jax.Array) -> jax.Array:
        return call(hidden, weight, targets)[0].mean()

    return jax.value_and_grad(loss, argnums=(0, 1))


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, float32, median of {repetitions}\n\n{HEADER}")
    for num_rows, dim, vocab_size in SHAPES:
        keys = jax.random.split(jax.random.key(0), 3)
        arrays = (
            jax.random.normal(keys[0], (num_rows, dim)),
            jax.random.normal(keys[1], (vocab_size, dim)) * dim**-0.5,
            jax.random.randint(keys[2], (num_rows,), 0, vocab_size, jnp.int32),
        )
        calls = {
            "base": with_gradient(cross_entropy.base),
            "chunked": with_gradient(cross_entropy.chunked),
            "chunked, 1024": with_gradient(partial(cross_entropy.chunked, chunk_size=1024)),
        }
        print_rows(f"M{num_rows} D{dim} V{vocab_size}", measure(calls, arrays, repetitions))


if __name__ == "__main__":
    main()
