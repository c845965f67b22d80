"""What every call in a model returned, in the order in which it was computed: for whoever looks for the place where two runs part.

Nothing in a model has to be told: while somebody observes, each call's context keeps its result (``Context.observe``), and
results leave scans, remat and pipelines as summaries do. What a scan has stacked is taken apart here, so that of two layers
all of the first comes before anything of the second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import jax
import numpy as np

from ._context import Observer


class _Result(NamedTuple):
    name: str
    value: np.ndarray
    num_dims: int
    """Without those along which it is stacked."""


def in_order(results: Mapping[str, jax.Array], observer: Observer) -> dict[str, np.ndarray]:
    """The results by name: ``"embedding"``, then ``"layers/ffn.0"`` and on; fetches them from the devices."""
    place = {name: i for i, name in enumerate(observer.num_dims)}

    def first_called(name: str) -> str:
        return re.sub(r"#\d+", "", name)

    names = sorted(results, key=lambda name: place[first_called(name)])
    found = [_Result(name, np.asarray(results[name]), observer.num_dims[first_called(name)]) for name in names]
    return dict(_unstacked(found))


def _unstacked(results: Sequence[_Result]) -> Iterator[tuple[str, np.ndarray]]:
    def number(result: _Result) -> int | None:
        return result.value.shape[0] if result.value.ndim > result.num_dims else None

    for layers, group in groupby(results, number):
        together = list(group)
        if layers is None:
            yield from ((each.name, each.value) for each in together)
        else:
            for i in range(layers):
                yield from _unstacked([_Result(f"{name}.{i}", value[i], dims) for name, value, dims in together])
