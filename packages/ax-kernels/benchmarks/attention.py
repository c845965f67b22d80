"""Causal attention, forward and with gradient: jax.nn, base and blocked, in turns. Prints a Markdown table.

python benchmarks/attention.py [repetitions]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from ax_kernels import attention
from measure import HEADER, measure, print_rows

Attention = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

# Batch, length, heads, key heads, head dim.
SHAPES = ((8, 256, 8, 8, 32), (8, 256, 8, 8, 64), (1, 2048, 4, 4, 64), (1, 1024, 32, 8, 64))


def with_gradient(call: Attention) -> Callable[..., object]:
    def loss(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        return jnp.square(call(query, key, value)).sum()

    return jax.value_and_grad(loss, argnums=(0, 1, 2))


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, float32, median of {repetitions}\n\n{HEADER}")
    for batch, length, num_heads, num_kv_heads, head_dim in SHAPES:
        arrays = tuple(
            jax.random.normal(jax.random.key(index), (batch, length, heads, head_dim))
            for index, heads in enumerate((num_heads, num_kv_heads, num_kv_heads))
        )
        options = {"scale": head_dim**-0.5, "causal": True}
        calls: dict[str, Attention] = {
            "jax.nn": partial(jax.nn.dot_product_attention, is_causal=True),
            "base": partial(attention.base, **options),
            "blocked": partial(attention.blocked, **options),
        }
        title = f"B{batch} T{length} heads {num_heads}/{num_kv_heads} × {head_dim}"
        print_rows(f"{title} forward", measure(calls, arrays, repetitions))
        with_gradients = {name: with_gradient(call) for name, call in calls.items()}
        print_rows(f"{title} gradient", measure(with_gradients, arrays, repetitions))


if __name__ == "__main__":
    main()
