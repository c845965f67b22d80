"""The recipes by name. A recipe is a function that returns an experiment's config; it is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol, cast

from ax_config import NoMatchError, nearest
from ax_mesh import ACCELERATORS

from ._experiment import Experiment, for_accelerator


class Recipe(Protocol):
    """Gives the config of an experiment of so many steps; without a number, of its own."""

    __doc__: str | None

    def __call__(self, *, num_steps: int = ...) -> Experiment.Config:
        """The config."""
        ...


CATALOGUE: Mapping[str, str] = MappingProxyType(
    {
        "tiny": "ax_recipes.llama:tiny",
        "llama-60m": "ax_recipes.llama:llama_60m",
        "smollm2-135m": "ax_recipes.llama:smollm2_135m",
    }
)
"""Where each recipe is: ``module:function``."""


def recipe(name: str) -> Recipe:
    """The recipe of a name in the catalogue, or at ``module:function`` (yours).

    Raises:
        NoMatchError: There is none, with the nearest names.
    """
    if name not in CATALOGUE and ":" not in name:
        raise NoMatchError(f"there is no recipe {name!r}; {nearest(name, CATALOGUE)}")
    module, _, function = CATALOGUE.get(name, name).partition(":")
    try:
        return cast("Recipe", getattr(importlib.import_module(module), function))
    except (ModuleNotFoundError, AttributeError) as e:
        raise NoMatchError(f"there is no recipe {name!r}: {e}") from e


def effective(name: str, *, on: str, num_steps: int | None = None) -> Experiment.Config:
    """The config of a recipe on an accelerator, after its mesh rules: ``effective("tiny", on="v5e-8")``.

    Raises:
        NoMatchError: There is no such recipe, or no rule for the accelerator.
    """
    make = recipe(name)
    return for_accelerator(make() if num_steps is None else make(num_steps=num_steps), on)


def goldens() -> dict[str, Callable[[], Experiment.Config]]:
    """Every recipe's effective config on one host of every accelerator, as ``recipe/accelerator``."""
    accelerators = [row.one_host for row in ACCELERATORS]
    return {f"{name}/{on}": partial(effective, name, on=on) for name in CATALOGUE for on in accelerators}
