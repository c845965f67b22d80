"""Check each package's imports against what it declares, and its modules for import cycles.

    python -m tools.dependencies [PACKAGE...]

Five rules, over the syntax trees of `src`, `tests` and `examples` (so imports inside functions and under TYPE_CHECKING
count too):

1. What `src` imports is the standard library, the package itself, or a declared dependency (an extra's included).
2. What `tests` import, and the `examples` that they run, is that, or a dependency of the `test` extra.
3. Every declared dependency is imported by somebody; those of the `test` extra by the tests.
4. ax-config stands on the standard library (its plugin for pytest on that) and ax-kernels on JAX (and its numpy),
   whatever they declare.
5. No cycle among a package's modules, its `__init__` included: import-linter sees those between siblings only.

Which distribution an import belongs to is asked of the environment, so everything declared must be installed in it.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.workspace import PACKAGES, ROOT, Package

STANDS_ONLY_ON: dict[str, frozenset[str]] = {"ax-config": frozenset(), "ax-kernels": frozenset({"jax", "numpy"})}
MAY_ALSO: dict[tuple[str, str], frozenset[str]] = {("ax-config", "pytest_plugin.py"): frozenset({"pytest"})}
STANDARD_LIBRARY = sys.stdlib_module_names | {"annotationlib"}  # which came with Python 3.14
RUN_BY_NAME = frozenset({"pytest"})  # runs the tests, whether they import it or not


@cache
def distributions() -> dict[str, frozenset[str]]:
    """Return, for each importable top-level name here, the distributions that provide it; ours come from the tree."""
    installed = {name: frozenset(map(canonicalize_name, found)) for name, found in packages_distributions().items()}
    return installed | {package.module: frozenset({package.name}) for package in PACKAGES.values()}


def imports(file: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything a file imports; `root` is where its own full name begins."""
    folder = file.parent.relative_to(root).parts
    for node in ast.walk(ast.parse(file.read_bytes(), file)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) + 1 - node.level] if node.level else ()
            source = [*above, *([node.module] if node.module else [])]
            yield from ((node.lineno, ".".join([*source, alias.name])) for alias in node.names)


def strings(folder: Path) -> set[str]:
    """Return the string constants of a folder's files: a test may run a tool by name, as in `python -m mypy`."""
    nodes = (node for file in folder.rglob("*.py") for node in ast.walk(ast.parse(file.read_bytes(), file)))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def names(requirements: list[Requirement]) -> set[str]:
    """Return the distributions that the requirements name."""
    return {canonicalize_name(requirement.name) for requirement in requirements}


def may_stand_on(package: Package, file: Path, otherwise: frozenset[str]) -> frozenset[str]:
    """Return the distributions that a file of a package may import."""
    return STANDS_ONLY_ON.get(package.name, otherwise) | MAY_ALSO.get((package.name, file.name), frozenset())


def undeclared_and_unused(package: Package) -> Iterator[str]:
    """Yield a line for each break of the rules about declared dependencies."""
    test = names(package.requirements.get("test", []))
    required = names([r for extra, listed in package.requirements.items() if extra != "test" for r in listed])
    used: dict[Path, set[str]] = {package.source: set(), package.tests: set(), package.examples: set()}
    for folder, declared, where in (
        (package.source, required, "a dependency or a feature's extra"),
        (package.tests, required | test, "a dependency or an extra"),
        (package.examples, required | test, "a dependency or an extra"),
    ):
        for file in sorted(folder.rglob("*.py")):
            tops = {(line, imported.partition(".")[0]) for line, imported in imports(file, folder.parent)}
            for line, top in sorted(tops):
                beside = folder != package.source and (folder / f"{top}.py").exists()
                if beside or top in {package.module, folder.name} or top in STANDARD_LIBRARY:
                    continue
                providers = distributions().get(top, frozenset({top}))
                used[folder] |= providers
                at = f"{file.relative_to(ROOT)}:{line}: {package.name}"
                if not providers & declared:
                    yield f"{at} imports {top}, which its pyproject.toml doesn't declare as {where}"
                elif folder == package.source and not providers & may_stand_on(package, file, providers):
                    yield f"{at} imports {top}, but may stand only on {describe(STANDS_ONLY_ON[package.name])}"
    used[package.tests] |= used[package.examples] | RUN_BY_NAME | strings(package.tests)
    at = f"{(package.folder / 'pyproject.toml').relative_to(ROOT)}: {package.name}"
    for unused in sorted(required - used[package.source]):
        yield f"{at} declares {unused}, which nothing in src imports"
    for unused in sorted(test - used[package.tests]):
        yield f"{at} declares {unused} for its tests, which nothing in tests imports"


def describe(allowed: frozenset[str]) -> str:
    """Say what a package may stand on."""
    return ", ".join(["the standard library", *sorted(allowed)])


def cycles(package: Package) -> Iterator[str]:
    """Yield a line if the package's modules import each other in a circle."""
    files: dict[str, Path] = {}
    for file in package.source.rglob("*.py"):
        path = file.relative_to(package.source.parent).with_suffix("")
        files[".".join(path.parts[:-1] if path.name == "__init__" else path.parts)] = file
    graph: dict[str, set[str]] = {module: set() for module in files}
    for module, file in files.items():
        for _, imported in imports(file, package.source.parent):
            # `from ax_foo import name`: the submodule of that name, else what __init__ holds under it
            target = imported if imported in files else imported.rpartition(".")[0]
            if target in files and target != module:
                graph[module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        yield f"{package.source.relative_to(ROOT)}: import cycle: {' imports '.join(reversed(circle))}"


def main(arguments: list[str]) -> int:
    """Check the named packages, or all; print each complaint and return how the process should exit."""
    packages = [PACKAGES[name] for name in arguments] or list(PACKAGES.values())
    lines = [line for package in packages for rule in (undeclared_and_unused, cycles) for line in rule(package)]
    print("\n".join(lines) or f"imports and declared dependencies agree in {len(packages)} packages")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
