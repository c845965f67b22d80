"""``ax mesh show``: where the rules put every parameter of a recipe."""

from __future__ import annotations

from ax_config import override
from ax_config.overrides import assignment

from ax_recipes._catalogue import effective


def show(name: str, *, on: str, overrides: tuple[str, ...]) -> None:
    """Print the table of the recipe's parameters on so many devices here."""
    config = override(effective(name, on=on), [assignment(text, "--set") for text in overrides])
    experiment = config.build()
    print(config.mesh.build().describe(experiment.model.specs()))
