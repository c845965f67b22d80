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
        "llama-2-7b": "ax_recipes.llama:llama_2_7b",
        "llama-2-70b": "ax_recipes.llama:llama_2_70b",
        "qwen3-30b-a3b": "ax_recipes.qwen3_moe:qwen3_30b_a3b",
    }
)
"""Where each recipe is: ``module:function``."""

LARGE: tuple[str, ...] = ("llama-2-7b", "llama-2-70b", "qwen3-30b-a3b")
"""The recipes that are for hundreds of chips."""

CLUSTERS: tuple[str, ...] = (
    "v4-512",
    "v5e-256",
    "v5e-256x4",
    "v5p-512",
    "v5p-1024",
    "v6e-256",
    "v6e-256x4",
    "tpu7x-128",
    "tpu7x-256",
    "a100-256",
    "h100-64",
    "h100-256",
    "h200-256",
    "b200-64",
    "gb200-64",
    "trn2-256",
)
"""What the large recipes are meant for, and kept as goldens and compiled for."""


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
    """Every recipe's effective config on every accelerator, as ``recipe/accelerator``: one host, or what large ones are for."""
    hosts = [row.one_host for row in ACCELERATORS]
    return {
        f"{name}/{on}": partial(effective, name, on=on)
        for name in CATALOGUE
        for on in (("cpu-1", *CLUSTERS) if name in LARGE else hosts)
    }
