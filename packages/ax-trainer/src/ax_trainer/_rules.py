"""What turns gradients into a direction: any of optax's ``scale_by_…`` by its config, or what needs to know the specs first."""

from __future__ import annotations

from typing import TypeAlias

import ax_config
from ax_config import Buildable

from .protocols import Optimizer, SupportsSpecs

Rule: TypeAlias = Buildable[Optimizer] | Buildable[SupportsSpecs]


def made(rule: Rule, specs: object) -> Optimizer:
    """The optimizer that a config means, for parameters of these specs."""
    optimizer = rule.build()
    return optimizer.for_specs(specs) if isinstance(optimizer, SupportsSpecs) else optimizer


def adam() -> Buildable[Optimizer]:
    """The usual one."""
    import optax  # type: ignore[import-untyped]  # it ships no py.typed; imported late for start-up time

    return ax_config.config_for(optax.scale_by_adam)(b1=0.9, b2=0.95, eps=1e-8)
