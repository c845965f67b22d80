"""From the parameters of a plain model to those of the same model with adapters around its projections, or int8 weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import jax
import numpy as np

from ._int8_linear import as_int8
from ._param_spec import ParamSpec, SpecTree
from .protocols import ArrayTree


def adopted(plain: ArrayTree, /, *, fresh: ArrayTree, specs: SpecTree) -> ArrayTree:
    """``fresh``, with all values that ``plain`` has, in the form that ``specs`` asks for.

    Args:
        plain: The parameters of the plain model, as they were trained.
        fresh: The first ones of the model that takes them over, congruent to ``specs``; what adapters add stays as it is here.
        specs: What the latter's parameters are.

    Raises:
        ValueError: ``plain`` holds what the model has no place for.
    """
    params: dict[str, jax.Array | ArrayTree] = dict(fresh)
    inner = specs.get("base")
    if (
        isinstance(inner, dict) and "base" not in plain
    ):  # an adapter stands where the plain model has what is its base now
        return {**params, "base": adopted(plain, fresh=cast("ArrayTree", fresh["base"]), specs=inner)}
    for name, value in plain.items():
        spec = specs.get(name)
        if isinstance(value, Mapping) and isinstance(spec, dict):
            params[name] = adopted(value, fresh=cast("ArrayTree", fresh[name]), specs=spec)
        elif isinstance(spec, ParamSpec) and not isinstance(value, Mapping) and spec.shape == value.shape:
            params[name] = value
            if spec.dtype == np.int8 and value.dtype != np.int8:
                params[name], params["scale"] = as_int8(value, dims=spec.fan_in)
        else:
            raise ValueError(f"the model has no place for {name!r}, only for {sorted(specs)}")
    return params
