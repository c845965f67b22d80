"""Run both import checks: import-linter's contracts (in pyproject.toml), then `tools.dependencies`.

    python -m tools.imports

import-linter finds packages as an import would, so the sources are put on the path here; nothing of ours is installed.
"""

import sys

from importlinter.cli import lint_imports

from tools import dependencies
from tools.workspace import PACKAGES

if __name__ == "__main__":
    sys.path[:0] = [str(package.source.parent) for package in PACKAGES.values()]
    sys.exit(lint_imports(no_cache=True, no_logo=True) | dependencies.main([]))
