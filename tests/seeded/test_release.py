"""A release is refused until version, changelog, tag and tree agree."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.workspace import PACKAGES, ROOT

VERSION = PACKAGES["ax-config"].version
TAG = f"ax-config-v{VERSION}"


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def release(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-m", "tools.release", "ax-config"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with ax-config alone, tagged with its version, and a date in its changelog."""
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("packages/ax-config", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=leave)
    changelog = tmp_path / "packages/ax-config/CHANGELOG.md"
    changelog.write_text(f"# Changelog\n\n## [Unreleased]\n\n## [{VERSION}] - 2026-01-31\n\n- First.\n", "utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "Everything")
    git(tmp_path, "tag", TAG)
    return tmp_path


def test_ready(clone: Path) -> None:
    done = release(clone)
    assert not done.returncode, done.stdout + done.stderr
    assert f"ax-config {VERSION} is ready" in done.stdout


def test_no_tag(clone: Path) -> None:
    git(clone, "tag", "-d", TAG)
    done = release(clone)
    assert done.returncode
    assert f"there is no tag {TAG}" in done.stdout


def test_tag_of_another_commit(clone: Path) -> None:
    git(clone, "commit", "-q", "--allow-empty", "-m", "Later")
    done = release(clone)
    assert done.returncode
    assert f"the tag {TAG} is not the commit at hand" in done.stdout


def test_changed_tree(clone: Path) -> None:
    (clone / "packages/ax-config/README.md").write_text("other", "utf-8")
    done = release(clone)
    assert done.returncode
    assert "README.md" in done.stdout


@pytest.mark.parametrize(
    ("head", "complaint"),
    [("## [99.0.0] - 2026-01-31", "has no section"), (f"## [{VERSION}]", "has no date")],
)
def test_changelog_without_the_section(clone: Path, head: str, complaint: str) -> None:
    changelog = clone / "packages/ax-config/CHANGELOG.md"
    changelog.write_text(f"# Changelog\n\n{head}\n", "utf-8")
    done = release(clone)
    assert done.returncode
    assert complaint in done.stdout
