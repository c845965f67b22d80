"""Weight maps: which of our parameters is which tensor of a published checkpoint, and how its axes turn.

A model family says it once, as a list; a layer's number stands as ``{layer}`` and an expert's as ``{expert}``. Reading is
strict: a tensor that is missing, left over or of another size is an error. It can't tell a square matrix from its transpose,
which trains and samples almost well: parity with the published model has to.

    WEIGHTS = [
        Weight("embedding/weight", "model.embed_tokens.weight"),
        Weight("layers/ffn/up/weight", "model.layers.{layer}.mlp.up_proj.weight", transposed, layers=range(32)),
    ]
    params = read_weights(WEIGHTS, tensors, specs=model.specs())
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, cast

import numpy as np
from ax_config import nearest

Arrays: TypeAlias = "dict[str, np.ndarray | Arrays]"
"""Parameters in nested dicts."""


class Shaped(Protocol):
    """A parameter's description."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dims."""
        ...


class WeightMapError(ValueError):
    """A checkpoint and a weight map don't fit each other, or not the model."""


def as_it_is(tensor: np.ndarray) -> np.ndarray:
    """The tensor."""
    return tensor


def transposed(tensor: np.ndarray) -> np.ndarray:
    """``[out, in] → [in, out]``: PyTorch's linear layers multiply from the other side."""
    return tensor.T


class Weight(NamedTuple):
    """One parameter of ours, or one for each layer and expert, stacked on leading dims."""

    ours: str
    """The path, names joined by "/"."""
    theirs: str
    """The tensor's name; may hold ``{layer}`` and ``{expert}``."""
    read: Callable[[np.ndarray], np.ndarray] = as_it_is
    """What our parameter is of the tensor; its shape is made to fit by splitting and joining dims after that."""
    layers: Sequence[int] | None = None
    experts: Sequence[int] | None = None

    def names(self) -> list[str]:
        """The tensors that it needs, in the order in which they are stacked."""
        return [
            self.theirs.format(layer=layer, expert=expert)
            for layer in (self.layers if self.layers is not None else [None])
            for expert in (self.experts if self.experts is not None else [None])
        ]


def read_weights(
    weights: Iterable[Weight],
    tensors: Mapping[str, np.ndarray],
    *,
    specs: Mapping[str, object],
    ignore: Callable[[str], bool] = lambda _: False,
) -> Arrays:
    """Our parameters, out of a checkpoint's tensors.

    Args:
        weights: The family's map.
        tensors: The checkpoint by names.
        specs: What the model's parameters are.
        ignore: Tells names of tensors that may be left over.

    Raises:
        WeightMapError: A tensor is missing, left over, or doesn't fit; a parameter gets none.
    """
    shapes = dict(_shapes(specs, ""))
    params: Arrays = {}
    left, open_paths = set(tensors), set(shapes)
    for weight in weights:
        if weight.ours not in shapes:
            raise WeightMapError(f"the model has no parameter {weight.ours}; {nearest(weight.ours, shapes)}")
        missing = [name for name in weight.names() if name not in tensors]
        if missing:
            raise WeightMapError(f"{weight.ours}: there is no tensor {missing[0]}; {nearest(missing[0], tensors)}")
        parts = [weight.read(tensors[name]) for name in weight.names()]
        array = parts[0] if weight.layers is None and weight.experts is None else np.stack(parts)
        if array.size != int(np.prod(shapes[weight.ours])):
            raise WeightMapError(f"{weight.ours} is {shapes[weight.ours]}, {weight.theirs} gives {array.shape}")
        _put(params, weight.ours, array.reshape(shapes[weight.ours]))
        left -= set(weight.names())
        open_paths.discard(weight.ours)
    left = {name for name in left if not ignore(name)}
    if open_paths:
        raise WeightMapError(f"no tensor is for {', '.join(sorted(open_paths))}")
    if left:
        raise WeightMapError(f"no parameter takes {', '.join(sorted(left)[:8])}{' …' if len(left) > 8 else ''}")
    return params


def _shapes(specs: Mapping[str, object], prefix: str) -> Iterable[tuple[str, tuple[int, ...]]]:
    for name, spec in specs.items():
        path = f"{prefix}/{name}" if prefix else name
        if isinstance(spec, Mapping):
            yield from _shapes(cast("Mapping[str, object]", spec), path)
        else:
            yield path, cast("Shaped", spec).shape


def _put(params: Arrays, path: str, array: np.ndarray) -> None:
    *above, name = path.split("/")
    for step in above:
        params = cast("Arrays", params.setdefault(step, {}))
    params[name] = array
