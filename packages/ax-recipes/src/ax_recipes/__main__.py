"""``python -m ax_recipes`` is the ``ax`` command."""

from .cli import main

main()
