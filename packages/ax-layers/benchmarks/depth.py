"""Compile time doesn't grow with depth: the gradient of a model of 8 and of 80 layers, compiled by turns.

    python packages/ax-layers/benchmarks/depth.py

A stack runs its layer in a loop of the compiled program, so the program has one layer however deep the model is. Figures
are medians of 5; the exit status is 1 if 80 layers take more than 1.3 times as long as 8.
"""

from __future__ import annotations

import statistics
import sys
import time

import jax
import jax.numpy as jnp
from ax_layers import Attention, Block, CausalLM, GatedFeedForward, Remat, Repeat, as_model

SHALLOW, DEEP, REPEATS, MOST = 8, 80, 5, 1.3


def seconds(num_layers: int) -> float:
    block = Block.Config(
        attention=Attention.Config(num_heads=8, num_kv_heads=4, head_dim=32),
        ffn=GatedFeedForward.Config(hidden_dim=704),
    )
    layers = Repeat.Config(num_layers=num_layers, layer=Remat.Config(layer=block, prevent_cse=False))
    model = as_model(CausalLM.Config(dim=256, layers=layers).build(vocab_size=1_024))
    params = jax.eval_shape(model.init, jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((2, 128), jnp.int32)

    def loss(params: object, batch: object) -> jax.Array:
        value, _ = model.loss(params, batch, key=jax.random.key(0), train=True)  # type: ignore[arg-type]  # shapes
        return value

    lowered = jax.jit(jax.grad(loss)).lower(params, {"tokens": tokens, "targets": tokens})
    start = time.perf_counter()
    lowered.compile()
    return time.perf_counter() - start


def main() -> int:
    seconds(SHALLOW)  # what the first compilation of a process pays for
    shallow, deep = [], []
    for _ in range(REPEATS):
        jax.clear_caches()
        shallow.append(seconds(SHALLOW))
        jax.clear_caches()
        deep.append(seconds(DEEP))
    ratio = statistics.median(deep) / statistics.median(shallow)
    print(f"{SHALLOW} layers  {statistics.median(shallow):.2f} s")
    print(f"{DEEP} layers {statistics.median(deep):.2f} s   {ratio:.2f}×")
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
