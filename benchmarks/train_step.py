"""What our layers and trainer cost over pure JAX: one training step of the same model, both ways, by turns in one process.

The model is Llama-style: vocabulary 32,000, width 512, 8 scanned layers, 8 heads of 64, SwiGLU of 1,408, RMSNorm, rotary
positions, untied; 58.5 M parameters in float32; AdamW, clipped to norm 1; 8 sequences of 256 tokens. Ours is the recipe
``llama-60m``'s model, as its mesh rules make it on a CPU, in the trainer's compiled step. Theirs is written out below, as
one would without any framework, and as fast as plain JAX goes without kernels of its own.

    python benchmarks/train_step.py            20 steps each, after 2 that don't count
    python benchmarks/train_step.py --quick    a small model and 5 steps: does it still work?

Both start from the same parameters and must give the same losses. Compile time and memory are measured in a fresh process
for each, because the second in a process profits from the first. MFU counts 6 FLOPs per matmul parameter and token (the
head included, the embedding not) and 12 · layers · heads · head dim · sequence for attention; its peak is the best of this
machine's own float32 matrix products.

What the loop adds to a step, with all that ``ax train`` writes by default (metrics of every step to JSONL and TensorBoard),
is measured with the small model, whose steps are short enough to show it: the compiled step alone and the trainer, by turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import ax_mesh
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it ships no py.typed
from ax_layers import ModuleModel, as_model
from ax_recipes import llama, mesh_rules
from ax_runtime.agent import JsonlSink
from ax_runtime.tensorboard import TensorBoardSink
from ax_trainer import Trainer, compile_step, init_state
from ax_trainer.testing import SingleDevice

Arrays: TypeAlias = dict[str, jax.Array]
LEARNING_RATE = 3e-4
NUM_STEPS = 1_000  # of the schedule


@dataclasses.dataclass(frozen=True)
class Workload:
    """The model's sizes and the batch's."""

    sizes: llama.Sizes = llama.SIZES["60m"]
    vocab_size: int = 32_000
    batch_size: int = 8
    length: int = 256

    def batch(self) -> dict[str, np.ndarray]:
        """Random tokens; the same every time."""
        tokens = np.random.default_rng(0).integers(0, self.vocab_size, (self.batch_size, self.length + 1), np.int32)
        return {"tokens": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}


SMALL = Workload(llama.Sizes(2, 64, 2, 2, 32, 176), vocab_size=512, batch_size=2, length=64)


class Candidate(NamedTuple):
    """A step that carries its own state along: ``run()`` does one and gives the loss when it is complete."""

    run: Callable[[], float]
    compile_seconds: float
    compiled: jax.stages.Compiled


# Ours.


def our_model(workload: Workload) -> ModuleModel:
    """The recipe's, after its rule for a CPU."""
    on_cpu = mesh_rules.small().build(accelerator="cpu-1")
    return as_model(on_cpu(llama.model(workload.sizes)).build(vocab_size=workload.vocab_size))


def ours(workload: Workload) -> Candidate:
    """The recipe's model and learner in the trainer's step."""
    model = our_model(workload)
    learner = llama.adamw(num_steps=NUM_STEPS, learning_rate=LEARNING_RATE, warmup_steps=10).build()
    optimizer = learner.for_specs(model.specs())
    partitioner = SingleDevice()
    batch = partitioner.put(workload.batch())
    described = {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for name, x in batch.items()}
    step = compile_step(model, optimizer, partitioner, described)
    state = init_state(model, optimizer, partitioner, seed=0)

    def run() -> float:
        nonlocal state
        state, metrics = step(state, batch)
        jax.block_until_ready(state)
        return float(metrics["loss"][0])

    return Candidate(run, step.seconds, step.executable)


# Theirs: the same model and step in pure JAX. Letters of dims: B batch, T and S sequence, N heads, H head dim, D width,
# F inner width, V vocabulary.


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale


def rope(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def loss_of(params: dict[str, Arrays], tokens: jax.Array, targets: jax.Array) -> jax.Array:
    length, head_dim = tokens.shape[1], params["layers"]["query"].shape[-1]
    frequencies = 10_000.0 ** (-jnp.arange(0, head_dim, 2) / head_dim)
    angles = jnp.arange(length)[:, None, None] * frequencies
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    causal = jnp.tril(jnp.ones((length, length), bool))

    def layer(x: jax.Array, w: Arrays) -> tuple[jax.Array, None]:
        y = rms_norm(x, w["attention_norm"])
        q = rope(jnp.einsum("btd,dnh->btnh", y, w["query"]), cos, sin)
        k = rope(jnp.einsum("btd,dnh->btnh", y, w["key"]), cos, sin)
        v = jnp.einsum("btd,dnh->btnh", y, w["value"])
        logits = jnp.einsum("btnh,bsnh->bnts", q, k) * head_dim**-0.5
        weights = jax.nn.softmax(jnp.where(causal, logits, -1e30))
        x = x + jnp.einsum("btnh,nhd->btd", jnp.einsum("bnts,bsnh->btnh", weights, v), w["output"])
        y = rms_norm(x, w["ffn_norm"])
        return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"], None

    x, _ = jax.lax.scan(layer, params["outer"]["embedding"][tokens], params["layers"])
    logits = jnp.einsum("btd,vd->btv", rms_norm(x, params["outer"]["norm"]), params["outer"]["head"])
    losses: jax.Array = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return losses.mean()


def theirs(workload: Workload) -> Candidate:
    schedule = optax.warmup_cosine_decay_schedule(0.0, LEARNING_RATE, 10, NUM_STEPS, LEARNING_RATE / 10)

    def matrices(params: dict[str, Arrays]) -> dict[str, dict[str, bool]]:
        return {group: {name: "norm" not in name for name in params[group]} for group in params}

    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, b1=0.9, b2=0.95, weight_decay=0.1, mask=matrices)
    )

    def step(
        params: dict[str, Arrays], opt_state: optax.OptState, tokens: jax.Array, targets: jax.Array
    ) -> tuple[dict[str, Arrays], optax.OptState, jax.Array]:
        loss, grads = jax.value_and_grad(loss_of)(params, tokens, targets)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    params = jax.jit(lambda: same_parameters(workload))()
    opt_state = jax.jit(optimizer.init)(params)
    batch = jax.device_put(workload.batch())
    start = time.perf_counter()
    compiled = (
        jax.jit(step, donate_argnums=(0, 1)).lower(params, opt_state, batch["tokens"], batch["targets"]).compile()
    )
    seconds = time.perf_counter() - start

    def run() -> float:
        nonlocal params, opt_state
        params, opt_state, loss = compiled(params, opt_state, batch["tokens"], batch["targets"])
        jax.block_until_ready((params, opt_state))
        return float(loss)

    return Candidate(run, seconds, compiled)


def same_parameters(workload: Workload) -> dict[str, Arrays]:
    """Our initial parameters under the names that the hand-written model uses."""
    model = as_model(llama.model(workload.sizes).build(vocab_size=workload.vocab_size))
    init_key = jax.random.split(jax.random.key(0), 3)[0]  # as ax_trainer.init_state does
    flat = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(model.init(init_key))
    }
    outer = {"embedding": "embedding/weight", "norm": "norm/scale", "head": "head/weight"}
    layers = {
        **{name: f"attention/{name}/weight" for name in ("query", "key", "value", "output")},
        **{name: f"ffn/{name}/weight" for name in ("gate", "up", "down")},
        **{name: f"{name}/scale" for name in ("attention_norm", "ffn_norm")},
    }
    taken = {
        "outer": {name: flat.pop(path) for name, path in outer.items()},
        "layers": {name: flat.pop(f"layers/{path}") for name, path in layers.items()},
    }
    assert not flat, f"parameters that the hand-written model doesn't have: {sorted(flat)}"
    return taken


# The comparison.

CANDIDATES = {"ours": ours, "pure JAX": theirs}


class Footprint(NamedTuple):
    """What a candidate takes in a process of its own."""

    compile_seconds: float
    peak_rss_mb: float
    planned_mb: float
    """Arguments, outputs and temporaries by the compiler's account; donated ones once."""


def footprint(name: str, workload: Workload) -> Footprint:
    """Measured here; to be called in a fresh process."""
    candidate = CANDIDATES[name](workload)
    for _ in range(3):
        candidate.run()
    memory = candidate.compiled.memory_analysis()
    assert memory is not None
    planned = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )
    return Footprint(
        candidate.compile_seconds,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        planned / 2**20,
    )


def footprint_in_a_child(name: str, quick: bool) -> Footprint:
    command = [sys.executable, __file__, "--child", name, *(["--quick"] if quick else [])]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Footprint(*json.loads(out.splitlines()[-1]))


def take_turns(workload: Workload, steps: int) -> dict[str, list[float]]:
    """Seconds of each step; first one goes first, then the other."""
    candidates = {name: make(workload) for name, make in CANDIDATES.items()}
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(-2, steps):
        losses = {}
        for name in sorted(candidates, reverse=turn % 2 == 1):
            start = time.perf_counter()
            losses[name] = candidates[name].run()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
        one, other = losses.values()
        assert math.isclose(one, other, rel_tol=1e-4), f"step {turn + 3}: the losses differ: {losses}"
        print(f"\rstep {turn + 3} of {steps + 2}, loss {one:.4f}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return seconds


class Again:
    """A batch, ever again. Fits ``ax_trainer.protocols.BatchSource``."""

    def __init__(self, batch: dict[str, np.ndarray]) -> None:
        self._batch = batch

    def __next__(self) -> dict[str, np.ndarray]:
        return self._batch

    def get_state(self) -> bytes:
        return b""

    def set_state(self, _state: bytes, /) -> None:
        """It is everywhere the same."""


class Times:
    """When each step was dispatched. Fits ``ax_trainer.protocols.Hook``."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step(self, _step: int, /) -> None:
        self.seconds.append(time.perf_counter())


def loop_adds(steps: int = 300, rounds: int = 5) -> float:
    """Seconds that a step of the small model takes longer in the trainer than alone; the median of some rounds."""
    alone = ours(SMALL)
    more: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(steps):
            alone.run()
        bare = (time.perf_counter() - start) / steps
        times = Times()
        with tempfile.TemporaryDirectory(prefix="train-step-") as folder:
            optimizer = llama.adamw(num_steps=NUM_STEPS, learning_rate=LEARNING_RATE, warmup_steps=10)
            Trainer.Config(num_steps=steps, optimizer=optimizer).build(
                model=our_model(SMALL),
                partitioner=SingleDevice(),
                batches=Again(SMALL.batch()),
                sinks=[JsonlSink(Path(folder, "metrics.jsonl")), TensorBoardSink(folder)],
                hooks=[times],
                tokens_per_step=SMALL.batch_size * SMALL.length,
            ).run()
        more.append((times.seconds[-1] - times.seconds[1]) / (steps - 2) - bare)
    return statistics.median(more)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each (default: 20)")
    parser.add_argument("--quick", action="store_true", help="a small model and 5 steps")
    parser.add_argument("--child", choices=CANDIDATES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    workload = SMALL if args.quick else Workload()
    if args.child:
        print(json.dumps(footprint(args.child, workload)))
        return

    footprints = {name: footprint_in_a_child(name, args.quick) for name in CANDIDATES}
    seconds = take_turns(workload, 5 if args.quick else args.steps)

    model = llama.model(workload.sizes).build(vocab_size=workload.vocab_size)
    tokens = workload.batch_size * workload.length
    peak = ax_mesh.peak_flops(jax.devices()[0])
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}, peak {peak.per_second / 1e9:.0f} GFLOP/s")
    print(f"{'':10}{'s/step':>8}{'tokens/s':>10}{'MFU':>7}{'trace+compile s':>17}{'peak RSS MB':>13}{'planned MB':>12}")
    for name, times in seconds.items():
        median, took = statistics.median(times), footprints[name]
        mfu = model.training_flops_per_token(workload.length) * tokens / median / peak.per_second
        print(
            f"{name:10}{median:8.3f}{tokens / median:10.0f}{mfu:7.1%}{took.compile_seconds:17.2f}"
            f"{took.peak_rss_mb:13.0f}{took.planned_mb:12.0f}"
        )
    step, yardstick = (statistics.median(seconds[name]) for name in ("ours", "pure JAX"))
    more = loop_adds()
    print(
        f"ratio of medians: {step / yardstick:.3f}; the loop adds {1e3 * more:.2f} ms, so {(step + more) / yardstick:.3f} with it"
    )


if __name__ == "__main__":
    main()
