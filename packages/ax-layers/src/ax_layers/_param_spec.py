"""What a module says of a parameter before there is one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import jax
import numpy as np

from .protocols import Initializer


@dataclass(frozen=True)
class ParamSpec:
    """A parameter's shape, type, meaning and first value.

    Attributes:
        shape: Its dims.
        dtype: The type that it is stored in.
        axes: The logical name of each dim ("embed", "mlp", …), None where it has none.
        initializer: Draws its first value.
        fan_in: The dims, counted from the end (-1 is the last), that an output sums over.
        weight_decay: Whether an optimizer that decays weights should decay this one.
        trainable: Whether it is learnt at all.
        adapter: Whether an adapter adds it; ``as_model`` says of a model with adapters that only they are learnt.

    Raises:
        ValueError: ``axes`` and ``shape`` differ in length, or ``fan_in`` names dims that aren't there.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    axes: tuple[str | None, ...]
    initializer: Initializer = field(compare=False)
    fan_in: tuple[int, ...] = ()
    weight_decay: bool = True
    trainable: bool = True
    adapter: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        if len(self.axes) != len(self.shape):
            raise ValueError(f"a parameter of shape {self.shape} needs {len(self.shape)} axes, got {self.axes}")
        if not all(-len(self.shape) <= dim < 0 for dim in self.fan_in):
            raise ValueError(f"fan_in counts dims of {self.shape} from the end (-1 is the last), got {self.fan_in}")

    def initialise(self, key: jax.Array, /) -> jax.Array:
        """The first value, a pure function of ``key``."""
        fan_in = math.prod(self.shape[dim] for dim in self.fan_in)
        return self.initializer(key, self.shape, self.dtype, fan_in=fan_in)

    def stacked(self, size: int, axis: str, /) -> ParamSpec:
        """The spec of ``size`` such parameters on a new leading dim."""
        return replace(self, shape=(size, *self.shape), axes=(axis, *self.axes))


SpecTree: TypeAlias = "dict[str, ParamSpec | SpecTree]"
"""Specs in nested dicts, congruent to a module's parameters."""
