"""The optimizer that a ``Learner`` makes: one of optax's, which also says what it leaves alone. Imports optax; imported late."""

from __future__ import annotations

import optax  # type: ignore[import-untyped]  # it ships no py.typed

from .protocols import Optimizer


class Learning(optax.GradientTransformationExtraArgs):  # type: ignore[misc]  # for want of types it is Any
    """Fits ``Optimizer`` and ``SupportsFreezing``."""

    frozen_parameters: frozenset[str]

    @classmethod
    def of(cls, optimizer: Optimizer, *, frozen_parameters: frozenset[str]) -> Learning:
        """``optimizer``, made for parameters other than these."""
        learning: Learning = cls(optimizer.init, optimizer.update)
        learning.frozen_parameters = frozen_parameters
        return learning
