"""How fast configs are: trees of ten thousand nodes, beside Fiddle's on the same tree, in one process.

    pip install fiddle
    python benchmarks/config.py              10,000 nodes, and whether the time grows with the nodes
    python benchmarks/config.py --quick      1,000 nodes, fewer repeats: does it still work?

The tree is a model of many layers, each with a norm, an attention with two projections and a feed-forward: six configs a
layer, of three to five values each. Every operation is what each library offers for the same purpose:

    make      build the tree by its constructors
    clone     a copy that shares nothing            copy.deepcopy
    diff      what differs, one value changed       fiddle.diffing.build_diff
    dump      the whole tree as readable text       fiddle.printing.as_str_flattened
    save      text that can be loaded again         fiddle.experimental.serialization.dump_json
    set       a new tree, one field set on every    deepcopy, selectors.select(…).set(…)
              feed-forward
    swap      a new tree, every feed-forward        deepcopy, selectors.select(…).replace(…)
              replaced

Figures are medians over repeats that take turns; "faster" of diff and save is from a tree of 500 nodes, since Fiddle's
time for them grows with the square. The exit status is 1 if an operation is less than three times as fast as
Fiddle's or if its time per node grows by more than half from a tenth of the nodes to all of them. The last table is the
price of provenance: the same operations with recording taken out.
"""

from __future__ import annotations

import argparse
import copy
import gc
import statistics
import sys
import time
from collections.abc import Callable
from unittest import mock

import ax_config
import fiddle  # type: ignore[import-untyped]  # it ships no py.typed
from ax_config import REQUIRED, Config, diff, dumps, field, replacing, setting, walk
from fiddle import diffing, printing, selectors
from fiddle.experimental import serialization  # type: ignore[import-untyped]

QUADRATIC = ("diff", "save")
SMALL = 500
"""The nodes of the tree for what takes Fiddle a time that grows with the square: ten thousand would be minutes to hours."""


class Linear:
    class Config(ax_config.Config["Linear"]):
        in_dim: int = REQUIRED
        out_dim: int = REQUIRED
        use_bias: bool = False

    def __init__(self, cfg: Config, /) -> None: ...


class Norm:
    class Config(ax_config.Config["Norm"]):
        dim: int = REQUIRED
        eps: float = 1e-5
        scale: bool = True

    def __init__(self, cfg: Config, /) -> None: ...


class Attention:
    class Config(ax_config.Config["Attention"]):
        num_heads: int
        head_dim: int
        dropout: float = 0.0
        query: Linear.Config = field(default_factory=Linear.Config)
        output: Linear.Config = field(default_factory=Linear.Config)

    def __init__(self, cfg: Config, /) -> None: ...


class FeedForward:
    class Config(ax_config.Config["FeedForward"]):
        hidden_dim: int
        activation: str = "silu"
        dropout: float = 0.0

    def __init__(self, cfg: Config, /) -> None: ...


class Experts:
    class Config(ax_config.Config["Experts"]):
        num_experts: int
        top_k: int = 2
        hidden_dim: int = 1_024

    def __init__(self, cfg: Config, /) -> None: ...


class Layer:
    class Config(ax_config.Config["Layer"]):
        name: str
        norm: Norm.Config
        attention: Attention.Config
        ffn: FeedForward.Config | Experts.Config

    def __init__(self, cfg: Config, /) -> None: ...


class Model:
    class Config(ax_config.Config["Model"]):
        dim: int
        layers: tuple[Layer.Config, ...]

    def __init__(self, cfg: Config, /) -> None: ...


def ours(num_nodes: int) -> Model.Config:
    return Model.Config(
        dim=256,
        layers=tuple(
            Layer.Config(
                name=f"layer{i}",
                norm=Norm.Config(dim=256, eps=1e-6),
                attention=Attention.Config(
                    num_heads=8,
                    head_dim=64,
                    query=Linear.Config(in_dim=256, out_dim=512),
                    output=Linear.Config(in_dim=512, out_dim=256),
                ),
                ffn=FeedForward.Config(hidden_dim=1_024),
            )
            for i in range(num_nodes // 6)
        ),
    )


# The same classes as Fiddle wants them: the values are the arguments.


def linear(in_dim: int, out_dim: int, use_bias: bool = False) -> None: ...


def norm(dim: int, eps: float = 1e-5, scale: bool = True) -> None: ...


def attention(num_heads: int, head_dim: int, query: object, output: object, dropout: float = 0.0) -> None: ...


def feed_forward(hidden_dim: int, activation: str = "silu", dropout: float = 0.0) -> None: ...


def experts(num_experts: int, top_k: int = 2, hidden_dim: int = 1_024) -> None: ...


def layer(name: str, norm: object, attention: object, ffn: object) -> None: ...


def model(dim: int, layers: object) -> None: ...


def theirs(num_nodes: int) -> object:
    return fiddle.Config(
        model,
        dim=256,
        layers=tuple(
            fiddle.Config(
                layer,
                name=f"layer{i}",
                norm=fiddle.Config(norm, dim=256, eps=1e-6),
                attention=fiddle.Config(
                    attention,
                    num_heads=8,
                    head_dim=64,
                    query=fiddle.Config(linear, in_dim=256, out_dim=512),
                    output=fiddle.Config(linear, in_dim=512, out_dim=256),
                ),
                ffn=fiddle.Config(feed_forward, hidden_dim=1_024),
            )
            for i in range(num_nodes // 6)
        ),
    )


def set_theirs(tree: object) -> object:
    twin = copy.deepcopy(tree)
    selectors.select(twin, feed_forward).set(hidden_dim=2_048)
    return twin


def swap_theirs(tree: object) -> object:
    twin = copy.deepcopy(tree)
    selectors.select(twin, feed_forward).replace(fiddle.Config(experts, num_experts=8))
    return twin


set_ours = setting(FeedForward, hidden_dim=2_048)
swap_ours = replacing(FeedForward, Experts.Config(num_experts=8))


def our_operations(num_nodes: int) -> dict[str, Callable[[], object]]:
    tree = ours(num_nodes)
    other = tree.clone()
    other.layers[len(other.layers) // 2].norm.eps = 1e-3
    assert len(diff(tree, other)) == 1
    assert {layer.ffn.hidden_dim for layer in set_ours(tree).layers} == {2_048}
    assert all(isinstance(layer.ffn, Experts.Config) for layer in swap_ours(tree).layers)
    assert ax_config.loads(dumps(tree)) == tree
    return {
        "make": lambda: ours(num_nodes),
        "clone": tree.clone,
        "diff": lambda: diff(tree, other),
        "dump": lambda: dumps(tree),
        "save": lambda: dumps(tree),
        "set": lambda: set_ours(tree),
        "swap": lambda: swap_ours(tree),
    }


def their_operations(num_nodes: int) -> dict[str, Callable[[], object]]:
    tree = theirs(num_nodes)
    other = copy.deepcopy(tree)
    other.layers[len(other.layers) // 2].norm.eps = 1e-3  # type: ignore[attr-defined]  # fiddle's configs are untyped
    assert {layer.ffn.hidden_dim for layer in set_theirs(tree).layers} == {2_048}  # type: ignore[attr-defined]
    return {
        "make": lambda: theirs(num_nodes),
        "clone": lambda: copy.deepcopy(tree),
        "diff": lambda: diffing.build_diff(tree, other),
        "dump": lambda: printing.as_str_flattened(tree),
        "save": lambda: serialization.dump_json(tree),
        "set": lambda: set_theirs(tree),
        "swap": lambda: swap_theirs(tree),
    }


def seconds(operation: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    operation()
    return time.perf_counter() - start


def medians(repeats: int, *sides: dict[str, Callable[[], object]]) -> list[dict[str, float]]:
    """The median seconds of each operation of each side; the sides take turns."""
    times: list[dict[str, list[float]]] = [{name: [] for name in side} for side in sides]
    for _ in range(repeats):
        for name in sides[0]:
            for side, taken in zip(sides, times, strict=True):
                taken[name].append(seconds(side[name]))
    return [{name: statistics.median(each) for name, each in taken.items()} for taken in times]


def _nothing(*_: object) -> None: ...


def without_provenance(operations: dict[str, Callable[[], object]]) -> dict[str, Callable[[], object]]:
    def silent(operation: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            with mock.patch.multiple("ax_config._config", given=_nothing, logged=_nothing):
                return operation()

        return run

    return {name: silent(operation) for name, operation in operations.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000, help="configs in the tree (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=5, help="how often each operation is timed (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="1,000 nodes and 3 repeats")
    args = parser.parse_args()
    nodes, repeats = (1_000, 3) if args.quick else (args.nodes, args.repeats)
    failures = []

    our_all, their_all = our_operations(nodes), their_operations(nodes)
    our_small, their_small = our_operations(SMALL), their_operations(SMALL)
    for name in QUADRATIC:
        their_all[name] = lambda: None
    our, their = medians(repeats, our_all, their_all)
    ours_few, theirs_few = medians(
        1, {name: our_small[name] for name in QUADRATIC}, {name: their_small[name] for name in QUADRATIC}
    )
    (small,) = medians(repeats * 4, our_operations(nodes // 10))
    print(f"{len(list(walk(ours(nodes)))):,} configs; ms, median of {repeats}; Python {sys.version.split()[0]}\n")
    print(f"{'':8}{'ax-config':>12}{'fiddle':>12}{'faster':>10}{'growth':>10}")
    for name, taken in our.items():
        growth = taken / small[name] / 10
        if name in QUADRATIC:
            shown, ratio = "–", theirs_few[name] / ours_few[name]
        else:
            shown, ratio = f"{their[name] * 1e3:.1f}", their[name] / taken
        print(f"{name:8}{taken * 1e3:12.1f}{shown:>12}{ratio:9.1f}×{growth:9.2f}×")
        if ratio < 3:
            failures.append(f"{name} is only {ratio:.1f} times as fast as Fiddle")
        if growth > 1.5 and not args.quick:
            failures.append(f"{name} takes {growth:.2f} times as long per node on ten times the nodes")
    print("\ngrowth: time per node here, over time per node on a tenth of the nodes")
    for name in QUADRATIC:
        print(f"{name} of {SMALL} nodes: {ours_few[name] * 1e3:.1f} ms, Fiddle {theirs_few[name] * 1e3:,.1f} ms")
    print()
    plain = our_operations(nodes)
    known, silent = medians(repeats * 2, plain, without_provenance(plain))
    print(f"{'':8}{'recorded':>12}{'silent':>12}{'price':>10}")
    for name, taken in known.items():
        print(f"{name:8}{taken * 1e3:12.1f}{silent[name] * 1e3:12.1f}{(taken / silent[name] - 1) * 100:9.1f}%")
    for failure in failures:
        print(failure, file=sys.stderr)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
