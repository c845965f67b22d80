"""The published models by name: each family's ``SIZES``, put together by its ``model``."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from ax_config import NoMatchError, nearest
from ax_layers import CausalLM

from .weight_map import Weight

FAMILIES = (
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "gemma2",
    "gemma3",
    "deepseek",
    "olmo2",
    "gpt2",
    "mamba2",
)
"""The modules of this package that hold a family."""


class Sized(Protocol):
    """A family's sizes."""

    @property
    def vocab_size(self) -> int | None:
        """Of the published model; None where there is none."""
        ...


class Family(Protocol):
    """A family's module."""

    SIZES: dict[str, Sized]

    def model(self, sizes: Sized, /) -> CausalLM.Config:
        """The model of these sizes; the vocabulary is left open."""
        ...

    def weights(self, sizes: Sized, /) -> list[Weight]:
        """Which parameter is which tensor of a checkpoint in Hugging Face's form."""
        ...


def model_names() -> list[str]:
    """The names of all models."""
    return [name for family in FAMILIES for name in _family(family).SIZES]


def model(name: str) -> CausalLM.Config:
    """The config of a published model, with its vocabulary: ``model("llama-2-7b")``.

    Raises:
        NoMatchError: There is none of this name, with the nearest ones.
    """
    family, sizes = published(name)
    config = family.model(sizes)
    return config if sizes.vocab_size is None else config.clone(vocab_size=sizes.vocab_size)


def published(name: str) -> tuple[Family, Sized]:
    """The family of a published model, and its sizes. Raises NoMatchError."""
    for family in map(_family, FAMILIES):
        if name in family.SIZES:
            return family, family.SIZES[name]
    raise NoMatchError(f"there is no model {name!r}; {nearest(name, model_names())}")


def _family(name: str) -> Family:
    return cast("Family", importlib.import_module(f"ax_recipes.{name}"))
