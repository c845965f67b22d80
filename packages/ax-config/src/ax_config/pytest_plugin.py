"""The pytest plugin: a fixture that compares configs with their golden files, and an option that writes these.

    def test_configs_are_golden(golden: Golden) -> None:
        golden.check_all({"small": small, "large": large})  # functions that return configs

A config that drifted fails the test with what changed; ``pytest --golden-write`` accepts it. It is found by itself where
ax-config is installed; from a source tree, put ``pytest_plugins = ["ax_config.pytest_plugin"]`` into conftest.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # at run time when a test asks for the fixture: most runs of pytest don't
    from ._config import Config
    from .golden import Configs, Drift

_written: pytest.StashKey[list[Drift]] = pytest.StashKey()


class Golden:
    """Compares configs with the files in ``goldens/`` beside the test's file, or writes them.

    Attributes:
        folder: The default folder.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.folder: Path = request.path.parent / "goldens"
        self._writing = bool(request.config.getoption("golden_write"))
        self._written = request.config.stash[_written]
        at = request.node.nodeid.partition("[")[0]
        self._command = f"pytest {at} --golden-write"

    def check(self, name: str, config: Config[object], folder: Path | None = None) -> None:
        """Fail unless the file called ``name`` says what ``config`` is."""
        from . import golden

        if self._writing:
            drift = golden.write_one(name, config, folder or self.folder, command=self._command)
        else:
            drift = golden.check_one(name, config, folder or self.folder)
        self._settle([drift] if drift else [])

    def check_all(self, configs: Configs, folder: Path | None = None) -> None:
        """Fail unless the files of a folder say what the configs are, and there are no others."""
        from . import golden

        if self._writing:
            drifts = golden.write(configs, folder or self.folder, command=self._command)
        else:
            drifts = golden.check(configs, folder or self.folder)
        self._settle(drifts)

    def _settle(self, drifts: list[Drift]) -> None:
        if self._writing:
            self._written += drifts
        elif drifts:
            told = "\n".join(map(str, drifts))
            pytest.fail(
                f"configs differ from their golden files:\n\n{told}\n\nto accept: {self._command}", pytrace=False
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("ax-config").addoption(
        "--golden-write", action="store_true", help="write the golden files of configs instead of comparing with them"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin to collect what is written."""
    config.stash[_written] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was written."""
    if config.stash[_written]:
        terminalreporter.section("golden configs written")
        for drift in config.stash[_written]:
            terminalreporter.write_line(drift.render_accepted(colour=False))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares configs with their golden files."""
    return Golden(request)
