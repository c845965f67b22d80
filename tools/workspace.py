"""What the tools know of the workspace: its packages, and what each one declares.

Everything is read from `packages/*/pyproject.toml`, so a new package is known to every session as soon as its folder
is there. Only `packaging` is needed beside the standard library: Nox brings it, and so does every session that uses this.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Package:
    """One of our packages, as its folder describes it."""

    folder: Path

    @property
    def name(self) -> str:
        """The name on an index, such as `ax-config`."""
        return self.folder.name

    @property
    def module(self) -> str:
        """The name in an import, such as `ax_config`."""
        return self.name.replace("-", "_")

    @property
    def source(self) -> Path:
        """The folder of the importable package."""
        return self.folder / "src" / self.module

    @property
    def tests(self) -> Path:
        """The folder of its tests."""
        return self.folder / "tests"

    @property
    def examples(self) -> Path:
        """The folder of its examples, which its tests run; most have none."""
        return self.folder / "examples"

    @cached_property
    def pyproject(self) -> dict[str, object]:
        """Its pyproject.toml, parsed."""
        return tomllib.loads((self.folder / "pyproject.toml").read_text("utf-8"))

    @cached_property
    def requirements(self) -> dict[str, list[Requirement]]:
        """What it declares: by extra, and under "" what it always needs."""
        project = self.pyproject["project"]
        assert isinstance(project, dict)
        declared = {"": project.get("dependencies", []), **project.get("optional-dependencies", {})}
        return {extra: [Requirement(line) for line in lines] for extra, lines in declared.items()}

    @property
    def extras(self) -> list[str]:
        """The extras that fit on any machine: all but those that name a JAX build for one accelerator."""
        return [
            extra
            for extra, requirements in self.requirements.items()
            if extra and not any(r.name == "jax" and r.extras for r in requirements)
        ]

    @property
    def version(self) -> str:
        """The version in `_version.py`."""
        found = re.search(r'^__version__ = "(.+)"$', (self.source / "_version.py").read_text("utf-8"), re.MULTILINE)
        assert found, f'{self.source}/_version.py has no line like: __version__ = "0.1.0"'
        return found[1]


PACKAGES = {folder.name: Package(folder) for folder in sorted((ROOT / "packages").iterdir()) if folder.is_dir()}


def is_ours(requirement: Requirement) -> bool:
    """Tell whether a requirement names a package of this workspace."""
    return canonicalize_name(requirement.name) in PACKAGES


def with_siblings(names: Iterable[str]) -> list[Package]:
    """Return the named packages and, after them, all of ours that they need, each once."""
    found: dict[str, Package] = {}

    def visit(name: str) -> None:
        if name not in found:
            found[name] = PACKAGES[name]
            for requirement in found[name].requirements[""]:
                if is_ours(requirement):
                    visit(canonicalize_name(requirement.name))

    for name in names:
        visit(name)
    return list(found.values())


def third_party(packages: Iterable[Package], extras_of: Iterable[Package] = ()) -> Iterator[Requirement]:
    """Yield what `packages` need from others: always, for the extras of `extras_of`, and for those they ask of siblings."""
    declared = [r for package in packages for r in package.requirements[""]]
    declared += [r for package in extras_of for extra in package.extras for r in package.requirements[extra]]
    for requirement in declared:
        if not is_ours(requirement):
            yield requirement
        for extra in requirement.extras if is_ours(requirement) else ():
            yield from PACKAGES[canonicalize_name(requirement.name)].requirements[extra]
