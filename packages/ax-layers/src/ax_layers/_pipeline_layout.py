"""Which layer stands where in a pipeline: runs of layers, cut into places that all stages have alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Layout:
    """``index`` ``[num_stages · num_chunks · places of a run]`` is the layer at each place, stage by stage; -1 is none."""

    num_stages: int
    num_chunks: int
    index: npt.NDArray[np.int32]

    @property
    def empty(self) -> bool:
        """Whether some places hold no layer."""
        return bool((self.index < 0).any())

    @property
    def in_order(self) -> bool:
        """Whether places follow one another as layers do, so that nothing has to move."""
        return bool((self.index == np.arange(self.index.size)).all())

    def placed(self, by_layer: jax.Array, /) -> jax.Array:
        """``[num_layers, …]`` by place; what stands at empty places means nothing."""
        return by_layer if self.in_order else by_layer[jnp.asarray(np.maximum(self.index, 0))]

    def by_layer(self, placed: jax.Array, /) -> jax.Array:
        """What ``placed`` undoes."""
        return placed if self.in_order else placed[jnp.asarray(np.argsort(self.index)[(self.index < 0).sum() :])]


def layout(layers_per_run: Sequence[int], /, *, num_stages: int) -> Layout:
    """Run ``r`` of the layers goes to stage ``r % num_stages``, as its chunk ``r // num_stages``."""
    num_runs, longest = len(layers_per_run), max(layers_per_run)
    first = np.cumsum([0, *layers_per_run])
    index = np.full((num_stages, num_runs // num_stages, longest), -1, np.int32)
    for run, length in enumerate(layers_per_run):
        index[run % num_stages, run // num_stages, :length] = first[run] + np.arange(length)
    return Layout(num_stages, num_runs // num_stages, index.reshape(-1))
