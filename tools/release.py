"""Check that one package is ready to be released, and say what to upload.

    python -m tools.release ax-config

Version, changelog and tag are three places that name one release: they must agree, and the tag must be the commit at
hand with nothing changed on top of it.
"""

import re
import subprocess
import sys

from tools.workspace import PACKAGES, ROOT, Package


def git(*arguments: str) -> str:
    """Return what a git command prints, or an empty string if it fails."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def complaints(package: Package) -> list[str]:
    """Return a line for everything that stands between the package and its release."""
    lines = []
    tag = f"{package.name}-v{package.version}"
    changelog = (package.folder / "CHANGELOG.md").read_text("utf-8")
    section = re.search(rf"^## \[{re.escape(package.version)}\](?P<rest>.*)$", changelog, re.MULTILINE)
    if not section:
        lines.append(f"CHANGELOG.md has no section [{package.version}]")
    elif not re.fullmatch(r" - \d{4}-\d{2}-\d{2}", section["rest"]):
        lines.append(
            f"the section [{package.version}] of CHANGELOG.md has no date: ## [{package.version}] - YYYY-MM-DD"
        )
    if not git("tag", "--list", tag):
        lines.append(f"there is no tag {tag}: git tag -a {tag} -m '{package.name} {package.version}'")
    elif git("rev-parse", f"{tag}^{{commit}}") != git("rev-parse", "HEAD"):
        lines.append(f"the tag {tag} is not the commit at hand: git checkout {tag}, or raise the version")
    if changed := git("status", "--porcelain"):
        lines.append(f"the tree has changes that no commit holds:\n{changed}")
    return lines


def main(name: str) -> int:
    """Check the package `name`, print the outcome and return how the process should exit."""
    package = PACKAGES[name]
    if lines := complaints(package):
        print("\n".join([f"{name} {package.version} is not ready:", *(f"* {line}" for line in lines)]))
        return 1
    print(f"{name} {package.version} is ready. Upload these, then push the tag:")
    print("\n".join(str(file) for file in sorted((ROOT / "dist").glob(f"{package.module}-{package.version}[-.]*"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
