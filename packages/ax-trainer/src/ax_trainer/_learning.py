"""The optimizer that a ``Learner`` makes: one of optax's that also knows what it leaves alone, and how it wants to begin.

Imports optax, so it is imported late.
"""

from __future__ import annotations

from collections.abc import Mapping

import optax  # type: ignore[import-untyped]  # it ships no py.typed

from ._widths import scaled
from .protocols import Optimizer, Params


class Learning(optax.GradientTransformationExtraArgs):  # type: ignore[misc]  # for want of types it is Any
    """Fits ``Optimizer``, ``SupportsFreezing`` and ``SupportsFirstValues``."""

    frozen_parameters: frozenset[str]
    _first_values: Mapping[str, float]

    @classmethod
    def of(
        cls, optimizer: Optimizer, *, frozen_parameters: frozenset[str], first_values: Mapping[str, float]
    ) -> Learning:
        """``optimizer``, made for parameters other than these, whose first values are to be multiplied with these factors."""
        learning: Learning = cls(optimizer.init, optimizer.update)
        learning.frozen_parameters, learning._first_values = frozen_parameters, first_values
        return learning

    def first_values(self, params: Params, /) -> Params:
        """A model's own first values, scaled."""
        return scaled(params, self._first_values)
