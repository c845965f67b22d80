"""The benchmark itself: every feature in zero lines, and it finds those that aren't."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.loc_complexity import NUM_VARIANTS, ROOT, STRANGERS, Source, table

FEATURES = sorted(file.stem for file in (ROOT / STRANGERS).glob("[!_]*.py"))
ROTARY = "packages/ax-layers/src/ax_layers/_rotary.py"


def run(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "benchmarks/loc_complexity.py"), "--quick", *options]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def test_every_feature_is_added_in_no_line_of_what_exists(tmp_path: Path) -> None:
    done = run(ROOT, "--json", str(tmp_path / "all.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads((tmp_path / "all.json").read_text("utf-8"))
    assert [found["feature"] for found in measured["features"]] == FEATURES
    for found in measured["features"]:
        sizes = {(row["experiments"], row["variants"]): row for row in found["rows"]}
        assert set(sizes) == {(1, 1), (10, 1), (1, 10), (10, 10)}
        for (num_experiments, num_variants), row in sizes.items():
            assert row["changed"] == {}
            assert row["modifier"] <= 10
            assert row["built"] == num_experiments * num_variants
        assert sizes[10, 10]["module"] > sizes[1, 1]["module"] > 20
        assert len(found["trained"]) == len(found["traced"]) == 1
    assert "AXLearn" in done.stdout
    assert "ax, measured here, 10 × 10 O(1) O(1) 0 0" in " ".join(done.stdout.split())


PLANTED = '''
from ax_config import setting
from ax_layers import Attention
from ax_layers._rotary import rotary

VARIANTS = {str(window): window for window in range(1, 11)}
Attention.extend = lambda *arguments, **options: None


def modify(tree, *, variant):
    """Not counted."""
    window = VARIANTS[variant]
    with open("packages/ax-layers/left.txt", "w") as file:
        file.write("a trace")

    if window == 10:
        raise ValueError("not ten")
    found = setting(
        Attention,
        window=window,
    )
    return found(tree)
'''


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the working tree, in which git lists the same files."""
    options = ["ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(["git", *options], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_a_feature_that_changes_a_module_is_found(copy: Path) -> None:
    shutil.copy(copy / STRANGERS / "rope.py", copy / STRANGERS / "planted.py")
    before = (copy / ROTARY).read_text("utf-8")
    after = before.replace("    _, length, _, head_dim = x.shape\n", "    length, head_dim = x.shape[1], x.shape[3]\n")
    assert after != before
    (copy / ROTARY).write_text(after, "utf-8")
    changed = subprocess.run(
        ["git", "diff", "--no-index", "--", str(ROOT / ROTARY), ROTARY], cwd=copy, capture_output=True, text=True
    )
    (copy / ROTARY).write_text(before, "utf-8")
    patch = "\n".join([f"--- a/{ROTARY}", f"+++ b/{ROTARY}", changed.stdout[changed.stdout.index("@@") :]])
    (copy / STRANGERS / "planted.patch").write_text(patch, "utf-8")

    done = run(copy, "--features", "planted")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"FAILED planted: 2 lines changed in {ROTARY}, a module that existed" in done.stderr
    assert done.stderr.count("FAILED") == 1


def test_a_feature_that_breaks_the_other_rules_is_found(copy: Path) -> None:
    (copy / STRANGERS / "planted.py").write_text(PLANTED, "utf-8")
    (copy / ROTARY).write_text((copy / ROTARY).read_text("utf-8") + "# benchmarks/strangers/planted.py\n", "utf-8")
    done = run(copy, "--features", "planted")
    assert done.returncode == 1
    for problem in (
        f"FAILED {ROTARY} knows of benchmarks/strangers",
        "FAILED planted: its modifier has 11 lines, more than 10",
        "FAILED planted: it imports what is private: ax_layers._rotary.rotary",
        "FAILED planted: leaving the packages alone: AssertionError: the feature changes what was imported: ",
        "ax_layers._attention.Attention.extend",
        "FAILED planted: applying it left traces in the packages: ['??', 'packages/ax-layers/left.txt']",
        "FAILED planted: variant '10' in experiment 0: ValueError: not ten",
        "FAILED planted: 90 of 10 × 10 configs were built",
    ):
        assert problem in done.stderr, done.stderr


def test_lines_are_those_of_the_syntax_tree() -> None:
    source = Source(
        '"""A module."""\nfrom ax_layers import _rotary\nimport ax_mesh._rules, os\n\n'
        'VARIANTS: dict[str, int] = {\n    "one": 1,\n    "two": (\n        2\n    ),\n}\n\n\n'
        'def modify(\n    tree,\n):\n    """Says.\n\n    What.\n    """\n\n    # why\n    return tree\n'
    )
    assert source.modifier_lines() == 5
    assert source.variant_lines() == [1, 3]
    assert source.private_names() == ["ax_layers._rotary", "ax_mesh._rules"]


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_has_ten_variants_and_a_short_modifier(feature: str) -> None:
    source = Source((ROOT / STRANGERS / f"{feature}.py").read_text("utf-8"))
    assert len(source.variant_lines()) == NUM_VARIANTS
    assert 2 <= source.modifier_lines() <= 10
    assert source.private_names() == []


def test_columns_line_up() -> None:
    assert table(("a", "bcd"), [("ef", "1"), ("g", "23")]) == "a   bcd\n──  ───\nef    1\ng    23"
