"""Wrappers: modules that run their one child through a transform.

A wrapper stands for its child. It adds no level to paths: parameters, keys and collections are the child's, so that to
rematerialise a layer, or not to, changes neither checkpoints nor random numbers.
"""

from __future__ import annotations

from typing import TypeVar

import jax
from ax_config import Buildable

from ._module import Module
from ._param_spec import SpecTree
from .protocols import ArrayTree

T = TypeVar("T")


class Wrapper(Module):
    """Abstract: a module that stands for its one child."""

    _inner: Module

    @property
    def inner(self) -> Module:
        """The module that it stands for."""
        return self._inner

    def wrap(self, config: Buildable[T], /, **interface: object) -> T:
        """Build the child.

        Raises:
            TypeError: It is no Module.
        """
        built = config.build(**interface)
        if not isinstance(built, Module):
            raise TypeError(f"{type(self).__qualname__} wraps a Module, got {type(built).__qualname__} from {config!r}")
        built._attach(self, "")
        self._inner = built
        return built

    def specs(self) -> SpecTree:
        """The child's."""
        return self._inner.specs()

    def init(self, key: jax.Array, /) -> ArrayTree:
        """The child's."""
        return self._inner.init(key)

    def training_flops_per_token(self, seq_length: int, /) -> float:
        """The child's."""
        return self._inner.training_flops_per_token(seq_length)
