"""Run mypy, strict, package by package, then on what uses them all.

    python -m tools.typecheck [PACKAGE...]

A package is checked with only ax-config's source beside its own, as it is installed: an import of another sibling has
no types to find. All runs share one cache, so third parties are read once.
"""

import os
import subprocess
import sys
from pathlib import Path

from tools.workspace import PACKAGES, ROOT, with_siblings

# And where their modules' names begin.
TOGETHER = {
    "tests/chips": ".",
    "tests/contracts": ".",
    "tests/e2e": "tests/e2e",
    "tests/loc": ".",
    "tests/matrix": ".",
    "tests/report": ".",
    "tests/typed": ".",
    "benchmarks": "benchmarks",
}
WORKSPACE = ["noxfile.py", "tools", "tests/seeded", "tests/wheels"]


def mypy(title: str, targets: list[Path], sources: list[Path]) -> bool:
    """Check the targets that exist, finding our packages in `sources`, and tell whether all was well."""
    there = [str(target.relative_to(ROOT)) for target in targets if target.exists()]
    if not there:
        return True
    print(f"mypy: {title}", flush=True)
    options = ["--strict", "--explicit-package-bases", "--namespace-packages", "--cache-dir=.mypy_cache"]
    path = os.pathsep.join(map(str, [*sources, ROOT]))
    command = [sys.executable, "-m", "mypy", *options, *there]
    return not subprocess.run(command, cwd=ROOT, env={**os.environ, "MYPYPATH": path}).returncode


def main(names: list[str]) -> int:
    """Check the named packages, or everything, and return how the process should exit."""
    good = []
    for package in [PACKAGES[name] for name in names or PACKAGES]:
        sources = [each.source.parent for each in with_siblings([package.name])]
        good.append(mypy(package.name, [package.source, package.tests], sources))
        benchmarks = package.folder / "benchmarks"
        good.append(mypy(f"{package.name}, its benchmarks", [benchmarks], [benchmarks, *sources]))
    if not names:
        everything = [package.source.parent for package in PACKAGES.values()]
        for folder, base in TOGETHER.items():
            good.append(mypy(folder, [ROOT / folder], [ROOT / base, *everything]))
        good += [mypy("the workspace", [ROOT / target for target in WORKSPACE], [])]
    return not all(good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
