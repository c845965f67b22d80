"""What is installed must be what was built: a stale copy and a stranger's package of our name are both found."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tools.workspace import ROOT


def make_wheel(folder: Path, name: str, text: str) -> Path:
    """Write the smallest wheel that holds one module."""
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/__init__.py", text)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return wheel


def check(site: Path, *wheels: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(ROOT / "tools" / "installed.py"), *map(str, wheels)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


def test_what_was_built_is_accepted(tmp_path: Path, site: Path) -> None:
    wheel = make_wheel(tmp_path, "ax_seed", "x = 1\n")
    ZipFile(wheel).extractall(site)
    assert not check(site, wheel).returncode


def test_an_older_copy_of_the_same_version(tmp_path: Path, site: Path) -> None:
    ZipFile(make_wheel(tmp_path, "ax_seed", "x = 1\n")).extractall(site)
    done = check(site, make_wheel(tmp_path, "ax_seed", "x = 2\n"))
    assert done.returncode
    assert "is not the ax_seed/__init__.py of" in done.stderr


def test_a_package_of_our_name_from_elsewhere(tmp_path: Path, site: Path) -> None:
    wheel = make_wheel(tmp_path, "ax_seed", "x = 1\n")
    for path in (wheel, make_wheel(tmp_path, "ax_other", "x = 1\n")):
        ZipFile(path).extractall(site)
    done = check(site, wheel)
    assert done.returncode
    assert "ax-other is installed, but from none of the given wheels" in done.stderr


def test_nothing_installed(tmp_path: Path, site: Path) -> None:
    done = check(site, make_wheel(tmp_path, "ax_seed", "x = 1\n"))
    assert done.returncode
    assert "ax-seed is not installed" in done.stderr
