"""Where two computations of the same thing part: on another mesh, in another type, by another kernel, version or library.

``observe`` takes down one step of a model on a batch, as arrays by name in the order of computation: its parameters, what its
parts give on the way to the loss (``SupportsObservation``), the loss, and the gradients, those of the last parts first.
``differences`` compares two such records; the first one beyond a tolerance is the place to look at, since all that follows
stands on it. Records are plain arrays, so one may come from another process, machine or library.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import jax
import numpy as np

from ._learnt import completed, learnt
from .protocols import Batch, Model, Params, Spec, SupportsObservation

Observations: TypeAlias = Mapping[str, np.ndarray]
"""Arrays by name, in the order of computation: ``params/…``, ``forward/…``, ``loss``, ``gradients/…``."""


@dataclass(frozen=True)
class Difference:
    """Of two arrays of one name."""

    name: str
    shape: tuple[int, ...]
    relative: float
    """‖a - b‖ / ‖a‖, both norms over the whole array; infinite where only one side is finite, or shapes differ."""
    largest: float
    """The largest \\|a - b\\|."""
    where: tuple[int, ...]
    """At which index that is."""
    a: float
    b: float
    problem: str = ""
    """Why they can't be compared number for number, if so."""


def observe(
    model: Model[Params],
    params: Params,
    batch: Batch,
    /,
    *,
    key: jax.Array,
    train: bool = True,
    stacking_axes: Sequence[str] = ("layers",),
) -> dict[str, np.ndarray]:
    """One step's record. Everything is held in the host's memory, so take a small batch.

    Of parameters stacked along ``stacking_axes`` each layer is on its own, ``"params/layers/ffn/up/weight.3"``. Call it where the
    model's arrays can be placed (``Partitioner.activate``).
    """
    specs = model.specs()

    def loss(learning: Params) -> jax.Array:
        return model.loss(completed(learning, params), batch, key=key, train=train)[0]

    value, gradients = jax.jit(jax.value_and_grad(loss))(learnt(specs, params))
    forward = model.observations(params, batch, key=key, train=train) if isinstance(model, SupportsObservation) else {}
    order = {name: place for place, name in enumerate(forward)}
    slopes = sorted(
        layer_by_layer(learnt(specs, specs), gradients, stacking_axes), key=lambda item: _place(item[0], order)
    )
    return {
        **{f"params/{name}": array for name, array in layer_by_layer(specs, params, stacking_axes)},
        **{f"forward/{name}": array for name, array in forward.items()},
        "loss": np.asarray(value),
        **{f"gradients/{name}": array for name, array in reversed(slopes)},
    }


def layer_by_layer(specs: object, tree: object, stacking_axes: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of ``tree``, congruent to ``specs``, by path; each layer of a stack on its own, as ``"path.3"``."""
    paths = jax.tree_util.tree_leaves_with_path(specs)
    for (path, spec), leaf in zip(paths, jax.tree.leaves(tree), strict=True):
        name, array = jax.tree_util.keystr(path, simple=True, separator="/"), np.asarray(leaf)
        axes = cast("Spec", spec).axes
        num_stacked = next((i for i, axis in enumerate(axes) if axis not in stacking_axes), len(axes))
        for index in np.ndindex(array.shape[:num_stacked]):
            yield ".".join([name, *map(str, index)]), array[index]


def _place(name: str, order: Mapping[str, int]) -> int:
    """When the part is done that a parameter belongs to; -1 where nobody told."""
    path, dot, layer = name.partition(".")
    while "/" in path:
        path = path.rpartition("/")[0]
        if (place := order.get(path + dot + layer)) is not None:
            return place
    return -1


def differences(a: Observations, b: Observations, /) -> list[Difference]:
    """Of all names that both have, in the order of ``a``.

    Shapes need not be the same where sizes are: ``[B, T, N · H]`` is compared with ``[B, T, N, H]``.
    """
    return [_difference(name, a[name], b[name]) for name in a if name in b]


def first_divergence(found: Sequence[Difference], /, *, tolerance: float) -> Difference | None:
    """The first difference that is larger, relatively."""
    return next((each for each in found if not each.relative <= tolerance), None)


def _difference(name: str, a: np.ndarray, b: np.ndarray) -> Difference:
    if a.size != b.size:
        problem = f"the shapes are {list(a.shape)} and {list(b.shape)}"
        return Difference(name, a.shape, math.inf, math.nan, (), math.nan, math.nan, problem)
    if not a.size:
        return Difference(name, a.shape, 0.0, 0.0, (), 0.0, 0.0)
    x, y = a.astype(np.float64), b.astype(np.float64).reshape(a.shape)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(x - y))
    finite = np.isfinite(gap)
    at = int(np.argmax(np.where(finite, gap, np.inf)))
    where = tuple(int(i) for i in np.unravel_index(at, a.shape))
    if not finite.all():
        problem = f"{int((~finite).sum())} numbers are finite on one side only"
        return Difference(name, a.shape, math.inf, math.inf, where, float(x[where]), float(y[where]), problem)
    norm, error = float(np.linalg.norm(np.where(np.isfinite(x), x, 0.0))), float(np.linalg.norm(gap))
    relative = 0.0 if not error else error / norm if norm else math.inf
    return Difference(name, a.shape, relative, float(gap.max()), where, float(x[where]), float(y[where]))
