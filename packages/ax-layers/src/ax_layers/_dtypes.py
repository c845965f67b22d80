"""The float types that a config may name."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

_FLOATS = ("float32", "bfloat16", "float16", "float64")


def float_dtype(name: str, /) -> np.dtype:
    """The type of that name.

    Raises:
        ValueError: No float type that layers compute or store in has this name.
    """
    if name not in _FLOATS:
        raise ValueError(f"{name!r} is no type for parameters or computation; it is one of {', '.join(_FLOATS)}")
    return jnp.dtype(name)
