"""The ``ax-config`` command: look at, compare, explain and vary the configs of any importable function."""

from ._app import main as main
