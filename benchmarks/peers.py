"""One training step beside other stacks': ours, pure JAX, MaxText, and transformers on PyTorch, eager and compiled.

All train the Llama of ``train_step.py`` on its batch, from the same first weights, in float32, by AdamW with the same
schedule, decay and clipping. Each lives in a process of its own and does a step when it is told to, so they take turns
and share what noise the machine makes; the others are idle meanwhile, but their memory is held: five take 16 GB.

    python benchmarks/peers.py                     20 steps each, after 2 that don't count
    python benchmarks/peers.py --quick             a small model and 3 steps: does it still work?
    python benchmarks/peers.py --only ours torch   some of them
    python benchmarks/peers.py --maxtext PYTHON    MaxText in an environment of its own, as `nox -s peers` has it

Everyone runs as a user would for speed on a CPU: MaxText 0.2.5 from its own configuration, setup and ``train_step``, its
layers scanned, nothing recomputed, plain attention (its other kinds are for accelerators); transformers with attention by
``scaled_dot_product_attention`` and PyTorch's fused AdamW. Wall time is the parent's, from its word to the answer;
CPU time is what the process itself used, in all its threads. ``--json`` keeps every step.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ax_mesh
import jax
import numpy as np
import train_step
from ax_recipes import llama
from packaging.requirements import Requirement


class Stack(NamedTuple):
    title: str
    needs: tuple[str, ...] | str
    """The distributions that a user asks an index for; or the dependency group of this workspace that lists them."""
    agrees: float
    """How much its losses may differ from the hand-written step's, relatively."""
    compared: int = 5
    """How many steps' losses; the first update is in the third."""


STACKS = {
    "ours": Stack("ours", ("ax-recipes",), 1e-4),
    "jax": Stack("pure JAX", ("jax", "optax"), 0.0),
    # Adam moves a query's weights as far when they are smaller by the attention's scale, which is further in the logits, and
    # from the second update on another path.
    "maxtext": Stack("MaxText", "peers_maxtext", 1e-2, compared=3),
    "torch": Stack("PyTorch eager", ("torch", "transformers"), 1e-3),
    "torch-compiled": Stack("PyTorch compiled", ("torch", "transformers"), 1e-3),
}


class Result(NamedTuple):
    """What one stack's process told, and how long it took."""

    startup: dict[str, float]
    losses: list[float]
    wall: list[float]
    cpu: list[float]
    peak_rss_mb: float
    num_distributions: int | None


class Worker:
    """The parent's end of a stack's process."""

    def __init__(self, name: str, folder: Path, python: str) -> None:
        self.name = name
        command = [python, str(Path(__file__).with_name("peers_worker.py")), name, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.startup: dict[str, float] = self._answer()
        self.losses: list[float] = []
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self._peak_rss_mb = 0.0

    def step(self) -> None:
        start = time.perf_counter()
        answer = self._ask("step")
        self.wall.append(time.perf_counter() - start)
        self.losses.append(answer["loss"])
        self.cpu.append(answer["cpu"])
        self._peak_rss_mb = answer["peak_rss_mb"]

    def finish(self) -> Result:
        needs = STACKS[self.name].needs
        number = self._ask(" ".join(distributions_of(needs) if isinstance(needs, str) else needs))
        self._process.communicate()
        return Result(self.startup, self.losses, self.wall, self.cpu, self._peak_rss_mb, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, line: str) -> Any:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: its process ended with {self._process.wait()}; what it said is above")
        return json.loads(line)


def distributions_of(group: str) -> Iterator[str]:
    """The names in a dependency group of this workspace."""
    listed = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["dependency-groups"][group]
    return (Requirement(each).name for each in listed)


def write_task(folder: Path, *, quick: bool) -> tuple[float, int]:
    """Leave there what all begin with; give the model's FLOPs for a token and the number of tokens."""
    workload = train_step.SMALL if quick else train_step.Workload()
    weights = train_step.same_parameters(workload)
    flat = {f"{group}/{name}": np.asarray(x) for group, arrays in weights.items() for name, x in arrays.items()}
    np.savez(folder / "arrays.npz", allow_pickle=False, **flat, **workload.batch())
    sizes = workload.sizes
    task = {
        "quick": quick,
        **{name: getattr(sizes, name) for name in ("dim", "num_layers", "num_heads", "head_dim", "hidden_dim")},
        "vocab_size": workload.vocab_size,
        "learning_rate": train_step.LEARNING_RATE,
        "num_steps": train_step.NUM_STEPS,
    }
    (folder / "task.json").write_text(json.dumps(task))
    model = llama.model(sizes).build(vocab_size=workload.vocab_size)
    return model.training_flops_per_token(workload.length), workload.batch_size * workload.length


def take_turns(workers: list[Worker], steps: int) -> None:
    """Steps of each, which one first changing from turn to turn; the first losses must agree, later small differences grow."""
    for turn in range(steps):
        for worker in workers[turn % len(workers) :] + workers[: turn % len(workers)]:
            worker.step()
            print(f"\rstep {turn + 1} of {steps}, {worker.name:20}", end="", file=sys.stderr, flush=True)
        compare_losses(workers)
    print(file=sys.stderr)


def compare_losses(workers: list[Worker]) -> None:
    """The last ones, with those of the hand-written step or of whoever stands in for it."""
    reference = next((each for each in workers if each.name == "jax"), workers[0])
    for worker in workers:
        stack, done = STACKS[worker.name], len(worker.losses)
        assert done > stack.compared or math.isclose(worker.losses[-1], reference.losses[-1], rel_tol=stack.agrees), (
            f"step {done}: losses of {worker.losses[-1]} by {worker.name}, {reference.losses[-1]} by {reference.name}"
        )


def table(results: Mapping[str, Result], *, flops: float, tokens: int, peak: float) -> str:
    """Lines to print; the first two steps don't count."""
    heads = ("s/step", "CPU s", "tokens/s", "MFU", "import s", "build s", "compile s", "first s", "RSS MB", "packages")
    lines = [f"{'':18}" + "".join(f"{head:>11}" for head in heads)]
    for name, result in results.items():
        median = statistics.median(result.wall[2:])
        startup = result.startup
        # What compiles when it is first called, or gets its memory then, shows in the first step.
        compile_seconds = startup.get("compile", 0.0) + max(0.0, result.wall[0] - median)
        cells = (
            f"{median:.3f}",
            f"{statistics.median(result.cpu[2:]):.3f}",
            f"{tokens / median:.0f}",
            f"{flops * tokens / median / peak:.1%}",
            f"{startup['import']:.1f}",
            f"{startup['build']:.1f}",
            f"{compile_seconds:.1f}",
            f"{sum(startup.values()) + result.wall[0]:.1f}",
            f"{result.peak_rss_mb:.0f}",
            str(result.num_distributions or "–"),
        )
        lines.append(f"{STACKS[name].title:18}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each (default: 20)")
    parser.add_argument("--quick", action="store_true", help="a small model and 3 steps")
    parser.add_argument("--only", nargs="+", choices=STACKS, default=list(STACKS), help="these (default: all)")
    parser.add_argument("--maxtext", default=sys.executable, metavar="PYTHON", help="the interpreter that has MaxText")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to put all that was measured")
    args = parser.parse_args()
    workers: list[Worker] = []
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        flops, tokens = write_task(Path(folder), quick=args.quick)
        peak = ax_mesh.peak_flops(jax.devices()[0]).per_second
        try:
            for name in args.only:
                print(f"{name} builds", file=sys.stderr)
                workers.append(Worker(name, Path(folder), args.maxtext if name == "maxtext" else sys.executable))
            take_turns(workers, 2 + (3 if args.quick else args.steps))
            results = {worker.name: worker.finish() for worker in workers}
        finally:
            for worker in workers:
                worker.kill()
    peak = max(peak, ax_mesh.peak_flops(jax.devices()[0]).per_second)  # whatever else the machine did at the beginning

    print(f"{os.cpu_count()} CPUs, peak {peak / 1e9:.0f} GFLOP/s of float32, {tokens} tokens a step")
    print(table(results, flops=flops, tokens=tokens, peak=peak))
    if args.json:
        measured = {name: result._asdict() for name, result in results.items()}
        args.json.write_text(json.dumps({"peak_flops": peak, "flops_per_token": flops, "tokens": tokens, **measured}))


if __name__ == "__main__":
    main()
