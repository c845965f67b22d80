"""LoC-complexity, measured: how many lines of modules that exist have to change to add a feature to N experiments, M ways?

Each module of ``benchmarks/strangers`` is a feature, written as somebody outside would: its code, variants of it by name, and a
modifier that puts one into any config. For each feature this

  1. copies the tree without the strangers' package and commits the copy: the base;
  2. adds the feature's own file, and asks git what else changed (a feature that can't do without a change of a module
     that exists has it in ``<feature>.patch`` beside it, which is applied, and counted);
  3. applies the modifier there, in a process of its own: M variants × N experiments, all different, over the recipes of the
     catalogue. Everything that comes out is built without memory, a sample traced, a sample trained, after which it decodes
     (``loc_worker.py``);
  4. asks git again: applying may not have changed a file either. Nor may the feature have patched what it imported, nor
     import what is private.

The modifier's lines are counted in the syntax tree: from ``def`` to the end of the body, docstring and blank lines not
counted. It exits with 1 if a line of an existing module changed, a modifier is longer than 10 lines, or a config failed.

    python benchmarks/loc_complexity.py                       all of it, up to 1,000 × 10 configs a feature
    python benchmarks/loc_complexity.py --quick               up to 10 × 10
    python benchmarks/loc_complexity.py --features moe,lora   these alone
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).resolve().parents[1]
STRANGERS = Path("benchmarks/strangers")
LONGEST_MODIFIER = 10
NUM_VARIANTS = 10

# The paper's estimates, by hand, for 20 model variants × 10 variants of the feature (arXiv 2507.05411): how the lines grow
# for RoPE and for MoE, and how many they are.
PAPER = (
    ("Megatron-LM", "O(NM)", "O(N)", "400", "20"),
    ("DeepSpeed", "O(NM)", "O(NM)", "320", "4,000"),
    ("TorchTitan", "O(NM)", "O(NM)", "240", "400"),
    ("Flax", "O(NM)", "–", "600", "–"),
    ("Praxis", "O(NM)", "O(M)", "300", "5"),
    ("MaxText", "O(NM)", "O(NM)", "200", "300"),
    ("AXLearn", "O(1)", "O(1)", "0", "0"),
)


# What is measured.


@dataclasses.dataclass(frozen=True)
class Row:
    """One feature in N experiments, M ways."""

    experiments: int
    variants: int
    changed: dict[str, int]
    """Lines added and removed, by file that the base has."""
    modifier: int
    """Lines."""
    module: int
    """Lines, with the data of as many variants."""
    built: int
    seconds: float

    @property
    def lines_changed(self) -> int:
        return sum(self.changed.values())


@dataclasses.dataclass
class Measurement:
    """Everything about one feature."""

    feature: str
    rows: list[Row] = dataclasses.field(default_factory=list)
    traced: list[str] = dataclasses.field(default_factory=list)
    trained: list[Message] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


class Message(TypedDict, total=False):
    """A line of the worker's output."""

    kind: str
    variants: int
    different: int
    experiments: int
    built: int
    seconds: float
    what: str
    error: str
    variant: str
    losses: list[float]
    grad_norms: list[float]
    validation_loss: float
    decoding_error: float


# Lines, from syntax trees.


class Source:
    """A feature's module as text."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._tree = ast.parse(text)

    def modifier_lines(self) -> int:
        """Of ``modify``: from ``def`` to the end of the body; docstring and blank lines don't count."""
        function = next(n for n in self._tree.body if isinstance(n, ast.FunctionDef) and n.name == "modify")
        counted = set(range(function.lineno, _end(function) + 1))
        first = function.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            counted -= set(range(first.lineno, _end(first) + 1))
        return sum(bool(self._lines[number - 1].strip()) for number in counted)

    def variant_lines(self) -> list[int]:
        """Of each entry of ``VARIANTS``; nothing when they aren't written out."""
        for node in self._tree.body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "VARIANTS":
                keys = node.value.keys if isinstance(node.value, ast.Dict) else []
                starts = [key.lineno for key in keys if key is not None]
                return [end - start for start, end in itertools.pairwise([*starts, _end(node)])]
        return []

    def private_names(self) -> list[str]:
        """What it imports of ours that isn't public."""
        found: list[str] = []
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ImportFrom):
                found += [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
        return [name for name in found if name.startswith("ax_") and "._" in name]


def _end(node: ast.stmt | ast.expr) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


# Lines, from git.


class Tree:
    """A git repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def git(self, *arguments: str) -> str:
        settings = (
            "user.name=benchmark",
            "user.email=benchmark@localhost",
            "commit.gpgsign=false",
            "core.hooksPath=/dev/null",
        )
        options = [part for setting in settings for part in ("-c", setting)]
        done = subprocess.run(["git", *options, *arguments], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"git {' '.join(arguments)} in {self.folder}: {done.stderr.strip()}")
        return done.stdout

    def changes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Against the commit: lines added and removed by file that it has, and lines of files that it hasn't."""
        options = ("diff", "HEAD", "--no-renames", "-z")
        status = self.git(*options, "--name-status").split("\0")
        kinds = dict(zip(status[1::2], status[0::2], strict=False))
        existing: dict[str, int] = {}
        new: dict[str, int] = {}
        for entry in filter(None, self.git(*options, "--numstat").split("\0")):
            added, removed, path = entry.split("\t")
            (new if kinds[path] == "A" else existing)[path] = sum(int(n) if n != "-" else 1 for n in (added, removed))
        return existing, new


def commit_base(folder: Path) -> Tree:
    """A copy of the working tree without the strangers' package, committed."""
    tree = Tree(folder)
    for name in filter(None, Tree(ROOT).git("ls-files", "-co", "--exclude-standard", "-z").split("\0")):
        if STRANGERS not in Path(name).parents and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    tree.git("init", "-q")
    tree.git("add", "-A")
    tree.git("commit", "-q", "-m", "The base")
    return tree


def mentions_of_strangers(tree: Tree) -> list[str]:
    """Files of the packages that know of the strangers' package."""
    word = STRANGERS.as_posix().replace("/", "[./]")
    files = tree.folder.glob("packages/**/*")
    texts = [file for file in files if file.suffix in (".py", ".toml", ".md") and file.is_file()]
    pattern = re.compile(rf"{word}|(from|import) +strangers")
    return [str(file.relative_to(tree.folder)) for file in texts if pattern.search(file.read_text("utf-8"))]


# One feature.


def measure(feature: str, base: Tree, folder: Path, scale: Scale) -> Measurement:
    """Add a feature to a clone of the base, and apply it there."""
    found, tree = Measurement(feature), with_feature(feature, base, folder)
    source = Source((folder / STRANGERS / f"{feature}.py").read_text("utf-8"))
    status = tree.git("status", "--porcelain", "packages")
    for message in worker(feature, tree, scale):
        match message["kind"]:
            case "counted":
                given, different = message["variants"], message["different"]
                if not given == different == NUM_VARIANTS:
                    found.problems.append(f"it has {given} variants, {different} different ones; wanted {NUM_VARIANTS}")
            case "applied":
                row = measured_row(tree, source, message)
                found.rows.append(row)
                tell(feature, f"{row.built:,} of {row.experiments:,} × {row.variants} built in {row.seconds:.1f} s")
            case "traced":
                found.traced.append(message["variant"])
            case "trained":
                found.trained.append(message)
                losses = " → ".join(f"{loss:.3f}" for loss in message["losses"])
                tell(feature, f"trained {message['variant']!r}, loss {losses}")
            case _:
                found.problems.append(f"{message['what']}: {message['error']}")
    found.problems += broken_rules(found, source, scale)
    if (after := tree.git("status", "--porcelain", "packages")) != status:
        found.problems.append(f"applying it left traces in the packages: {after.split()}")
    shutil.rmtree(folder)
    return found


def with_feature(feature: str, base: Tree, folder: Path) -> Tree:
    """A clone of the base, to which the feature's file is added and, if it has one, its patch applied."""
    base.git("clone", "-q", "--shared", str(base.folder), str(folder))
    tree, file = Tree(folder), STRANGERS / f"{feature}.py"
    (folder / STRANGERS).mkdir(parents=True)
    shutil.copy(ROOT / file, folder / file)
    tree.git("add", "--", str(file))
    if (patch := (ROOT / file).with_suffix(".patch")).exists():
        tree.git("apply", "--index", str(patch))
    return tree


def broken_rules(found: Measurement, source: Source, scale: Scale) -> Iterator[str]:
    """What of that which was found may not be."""
    for name, lines in {name: lines for row in found.rows for name, lines in row.changed.items()}.items():
        yield f"{lines} lines changed in {name}, a module that existed"
    if source.modifier_lines() > LONGEST_MODIFIER:
        yield f"its modifier has {source.modifier_lines()} lines, more than {LONGEST_MODIFIER}"
    if private := source.private_names():
        yield f"it imports what is private: {', '.join(private)}"
    for row in found.rows:
        if row.built != row.experiments * row.variants:
            yield f"{row.built} of {row.experiments} × {row.variants} configs were built"
    for what, done, wanted in (
        ("sizes were measured", found.rows, len(scale.experiments) * len(scale.variants)),
        ("samples were traced", found.traced, scale.samples),
        ("samples were trained", found.trained, scale.samples),
    ):
        if len(done) != wanted:
            yield f"{len(done)} of {wanted} {what}"


def tell(feature: str, what: str) -> None:
    """Progress."""
    print(f"{feature.replace('_', ' ')}: {what}", file=sys.stderr)


def measured_row(tree: Tree, source: Source, message: Message) -> Row:
    """What stands in the tree after the feature was applied so and so often."""
    changed, new = tree.changes()
    return Row(
        experiments=message["experiments"],
        variants=message["variants"],
        changed=changed,
        modifier=source.modifier_lines(),
        module=sum(new.values()) - sum(source.variant_lines()[message["variants"] :]),
        built=message["built"],
        seconds=message["seconds"],
    )


def worker(feature: str, tree: Tree, scale: Scale) -> Iterator[Message]:
    """Start the worker on a feature in the tree, with the tree's packages, and read what it says."""
    path = os.pathsep.join(map(str, [*sorted(tree.folder.glob("packages/*/src")), tree.folder]))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",  # each program runs a few times only
    }
    sizes = ("--experiments", *scale.experiments, "--variants", *scale.variants, "--samples", scale.samples)
    command = [sys.executable, "-m", "benchmarks.loc_worker", feature, *map(str, sizes)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=tree.folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
        if process.wait():
            errors.seek(0)
            last = errors.read().strip().splitlines()[-1:]
            yield {"kind": "failure", "what": f"the process ended with {process.returncode}", "error": "".join(last)}


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much to do."""

    experiments: tuple[int, ...]
    variants: tuple[int, ...]
    samples: int


FULL = Scale((1, 10, 100, 1_000), (1, 10), 3)
QUICK = Scale((1, 10), (1, 10), 1)


# The report.


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns; the first is set to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))])
        for first, *rest in (head, ["─" * width for width in widths], *rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def per_feature(found: Sequence[Measurement]) -> str:
    head = ("feature", "N experiments", "M variants", "existing lines", "modifier", "new module", "built", "seconds")
    rows = [
        (
            measurement.feature.replace("_", " ") if i == 0 else "",
            f"{row.experiments:,}",
            str(row.variants),
            str(row.lines_changed),
            str(row.modifier),
            str(row.module),
            f"{row.built:,}",
            f"{row.seconds:.1f}",
        )
        for measurement in found
        for i, row in enumerate(measurement.rows)
    ]
    return table(head, rows)


def growth(measurement: Measurement) -> str:
    """O(1) if the lines are the same at every N and M."""
    lines = {row.lines_changed for row in measurement.rows}
    return "O(1)" if len(lines) == 1 else f"from {min(lines)} to {max(lines)}" if lines else "–"


def beside_the_paper(found: Sequence[Measurement]) -> str:
    by_name = {measurement.feature: measurement for measurement in found if measurement.rows}
    ours = [by_name.get("rope"), by_name.get("moe")]
    largest = next((m.rows[-1] for m in ours if m is not None), None)
    measured = (
        f"ax, measured here, {largest.experiments:,} × {largest.variants}"
        if largest is not None
        else "ax, not measured",
        *(growth(m) if m is not None else "–" for m in ours),
        *(f"{m.rows[-1].lines_changed:,}" if m is not None else "–" for m in ours),
    )
    head = ("system", "RoPE", "MoE", "RoPE lines", "MoE lines")
    title = (
        "Lines changed in existing modules; all rows but ours are the paper's estimates by hand, for 20 × 10 variants"
    )
    return f"{title}\n\n{table(head, [*PAPER, measured])}"


def parse() -> argparse.Namespace:
    known = sorted(file.stem for file in (ROOT / STRANGERS).glob("[!_]*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="N up to 10 and one sample a feature; else up to 1,000, and three"
    )
    parser.add_argument(
        "--features", default=",".join(known), help="names, with commas between (default: all, %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="features at a time (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured there")
    args = parser.parse_args()
    args.features = args.features.split(",")
    if unknown := set(args.features) - set(known):
        parser.error(f"there is no feature {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return args


def main() -> int:
    args = parse()
    scale, start = QUICK if args.quick else FULL, time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ax-loc-", ignore_cleanup_errors=True) as scratch:
        base = commit_base(Path(scratch, "base"))
        problems = [f"{file} knows of {STRANGERS}" for file in mentions_of_strangers(base)]
        with ThreadPoolExecutor(args.jobs) as pool:
            tasks = [pool.submit(measure, name, base, Path(scratch, name), scale) for name in args.features]
            found = [task.result() for task in tasks]
    problems += [f"{m.feature}: {problem}" for m in found for problem in m.problems]

    print(per_feature(found))
    print(f"\n{beside_the_paper(found)}\n")
    total = sum(row.built for measurement in found for row in measurement.rows)
    trained = sum(len(measurement.trained) for measurement in found)
    print(f"{total:,} configs built, {trained} trained, in {time.perf_counter() - start:.0f} s")
    if args.json is not None:
        content = {"scale": scale, "features": found, "paper": PAPER, "problems": problems}
        args.json.write_text(json.dumps(content, default=dataclasses.asdict, indent=1) + "\n", "utf-8")
    for problem in problems:
        print(f"FAILED {problem}", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
