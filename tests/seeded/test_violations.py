"""Each rule of the workspace, broken once on purpose: the check that guards it must fail, and say what and where.

A check that can't fail guards nothing. Every test copies the tree, plants one violation in it and runs what the session
runs.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.workspace import ROOT

LINT = ["ruff", "check", "--no-cache"]
FORMAT = ["ruff", "format", "--check", "--no-cache"]
IMPORTS = [sys.executable, "-m", "tools.imports"]
TYPES = [sys.executable, "-m", "tools.typecheck", "ax-config"]


class Tree:
    """A copy of the workspace to break."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        leave = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache")
        for name in ("packages", "tools", "tests/seeded", "tests/wheels"):
            shutil.copytree(ROOT / name, folder / name, ignore=leave)
        for name in ("pyproject.toml", "noxfile.py"):
            shutil.copy(ROOT / name, folder / name)

    def write(self, path: str, text: str) -> None:
        """Plant a module: `ax_mesh/_seed.py`, under the package that the path begins with."""
        source = self.folder / "packages" / path.partition("/")[0].replace("_", "-") / "src"
        (source / path).write_text(f'"""Planted."""\n\n{text}\n', "utf-8")

    def declare(self, package: str, requirement: str, *, extra: str = "dependencies") -> None:
        """Add a requirement to a package's pyproject.toml."""
        file = self.folder / "packages" / package / "pyproject.toml"
        before = file.read_text("utf-8")
        after = before.replace(f"{extra} = [", f'{extra} = ["{requirement}", ', 1)
        assert after != before
        file.write_text(after, "utf-8")

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a check in this tree."""
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True)

    def refuses(self, command: list[str], *words: str) -> None:
        """Assert that a check fails and that its output, newlines aside, has all of these words."""
        done = self.run(command)
        output = " ".join((done.stdout + done.stderr).split())
        assert done.returncode, f"{command} passed:\n{done.stdout}"
        for word in words:
            assert word in output, f"{command} failed without a word of {word!r}:\n{done.stdout}{done.stderr}"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize("command", [LINT, FORMAT, IMPORTS, TYPES], ids=["lint", "format", "imports", "types"])
def test_clean_tree_passes(tree: Tree, command: list[str]) -> None:
    done = tree.run(command)
    assert not done.returncode, done.stdout + done.stderr


def test_undeclared_import(tree: Tree) -> None:
    tree.write("ax_mesh/_seed.py", "import rich")
    tree.refuses(IMPORTS, "ax_mesh/_seed.py:3: ax-mesh imports rich, which its pyproject.toml doesn't declare")


def test_undeclared_import_inside_a_function(tree: Tree) -> None:
    tree.write("ax_mesh/_seed.py", "def f() -> None:\n    import rich.table")
    tree.refuses(IMPORTS, "ax_mesh/_seed.py:4: ax-mesh imports rich, which its pyproject.toml doesn't declare")


def test_what_only_the_tests_may_import(tree: Tree) -> None:
    tree.write("ax_mesh/_seed.py", "import pytest")
    tree.refuses(IMPORTS, "ax-mesh imports pytest, which its pyproject.toml doesn't declare")


def test_what_only_one_module_of_config_may_import(tree: Tree) -> None:
    tree.write("ax_config/_seed.py", "import pytest")
    tree.refuses(IMPORTS, "_seed.py:3: ax-config imports pytest, but may stand only on the standard library")


def test_declared_dependency_that_nothing_imports(tree: Tree) -> None:
    tree.declare("ax-layers", "rich>=13.8")
    tree.refuses(IMPORTS, "ax-layers declares rich, which nothing in src imports")


def test_declared_test_dependency_that_nothing_imports(tree: Tree) -> None:
    tree.declare("ax-layers", "rich>=13.8", extra="test")
    tree.refuses(IMPORTS, "ax-layers declares rich for its tests, which nothing in tests imports")


@pytest.mark.parametrize("declared", [False, True], ids=["undeclared", "declared"])
def test_a_sibling_other_than_config(tree: Tree, declared: bool) -> None:
    tree.write("ax_layers/_seed.py", "import ax_mesh.protocols")
    if declared:
        tree.declare("ax-layers", "ax-mesh>=0.1,<0.2")
    tree.refuses(IMPORTS, "The star", "BROKEN", "ax_layers is not allowed to import ax_mesh", "ax_layers._seed")


def test_anybody_who_imports_the_recipes(tree: Tree) -> None:
    tree.write("ax_trainer/_seed.py", "import ax_recipes")
    tree.refuses(IMPORTS, "ax_trainer is not allowed to import ax_recipes", "ax_trainer._seed")


def test_kernels_that_import_config(tree: Tree) -> None:
    tree.write("ax_kernels/_seed.py", "import ax_config")
    tree.declare("ax-kernels", "ax-config>=0.1,<0.2")
    tree.refuses(IMPORTS, "ax_kernels is not allowed to import ax_config", "ax_kernels._seed -> ax_config")


def test_kernels_that_stand_on_more_than_jax(tree: Tree) -> None:
    tree.write("ax_kernels/_seed.py", "import rich")
    tree.declare("ax-kernels", "rich>=13.8")
    tree.refuses(
        IMPORTS, "ax_kernels/_seed.py:3: ax-kernels imports rich, but may stand only on the standard library, jax"
    )


def test_config_that_imports_a_third_party(tree: Tree) -> None:
    tree.write("ax_config/_seed.py", "import numpy")
    tree.declare("ax-config", "numpy>=2.0")
    tree.refuses(IMPORTS, "ax_config/_seed.py:3: ax-config imports numpy, but may stand only on the standard library")


def test_input_that_imports_jax(tree: Tree) -> None:
    tree.write("ax_input/_seed.py", "import jax")
    tree.declare("ax-input", "jax>=0.10.0")
    tree.refuses(IMPORTS, "ax_input is not allowed to import jax", "ax_input._seed -> jax")


def test_agent_that_imports_jax_through_another_module(tree: Tree) -> None:
    tree.write("ax_runtime/_seed.py", "import jax")
    tree.write("ax_runtime/agent/_seed.py", "import ax_runtime._seed")
    tree.refuses(IMPORTS, "ax_runtime.agent is not allowed to import jax", "ax_runtime.agent._seed -> ax_runtime._seed")


def test_cycle_between_modules(tree: Tree) -> None:
    tree.write("ax_trainer/_seed_a.py", "import ax_trainer._seed_b")
    tree.write("ax_trainer/_seed_b.py", "from . import _seed_a")
    tree.refuses(IMPORTS, "No cycles inside a package", "BROKEN", "No cycles are allowed in ax_trainer", "_seed_a")


def test_cycle_through_the_init_module(tree: Tree) -> None:
    tree.write("ax_trainer/_seed.py", "from ax_trainer import __version__\n\nx = __version__")
    init = tree.folder / "packages/ax-trainer/src/ax_trainer/__init__.py"
    init.write_text(init.read_text("utf-8") + "\nfrom ._seed import x as x\n", "utf-8")
    tree.refuses(IMPORTS, "import cycle:", "ax_trainer imports ax_trainer._seed")


def test_type_error(tree: Tree) -> None:
    tree.write("ax_config/_seed.py", 'x: int = "one"')
    tree.refuses(TYPES, "ax_config/_seed.py:3: error: Incompatible types in assignment")


def test_missing_annotation(tree: Tree) -> None:
    tree.write("ax_config/_seed.py", 'def f(x):\n    """Give it back."""\n    return x')
    tree.refuses(TYPES, "ax_config/_seed.py:3: error: Function is missing a type annotation")


def test_lint_error(tree: Tree) -> None:
    tree.write("ax_config/_seed.py", "import os")
    tree.refuses(LINT, "F401", "ax_config/_seed.py:3", "`os` imported but unused")


def test_format_error(tree: Tree) -> None:
    tree.write("ax_config/_seed.py", "x = [1,2]")
    tree.refuses(FORMAT, "would be reformatted", "ax_config/_seed.py:3")
